#include "entrain/engine/train/data_rates.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

// "41", and "4.1" below ten.
std::string rate_text(double rate) {
  const double rounded = std::round(10 * rate) / 10;
  return rounded < 10 ? concat(rounded) : format_count(std::llround(rate));
}

// "41 images/s (9,800 patches/s) and 3 clips/s"
std::string rates_text(const DecodedData& data, double seconds, bool with_patches) {
  const auto rate = [&](std::int64_t count) {
    return rate_text(static_cast<double>(count) / seconds);
  };
  std::string text;
  if (data.images > 0) {
    text = concat(rate(data.images), " images/s");
    text += with_patches ? concat(" (", rate(data.patches), " patches/s)") : "";
  }
  if (data.clips > 0) {
    text += concat(text.empty() ? "" : " and ", rate(data.clips), " clips/s");
  }
  return text;
}

}  // namespace

double DecodedData::share_of(std::int64_t some) const {
  return pieces == 0 ? 0.0 : static_cast<double>(some) / static_cast<double>(pieces);
}

void DecodedData::add(const DataTimes& rank, int rank_threads) {
  pieces += rank.pieces;
  fed += rank.fed;
  shared += rank.shared;
  if (rank.images == 0 && rank.clips == 0) {
    return;
  }
  images += rank.images;
  clips += rank.clips;
  patches += rank.patches;
  seconds += std::chrono::duration<double>(rank.decoding).count();
  threads += rank_threads;
}

Json to_json(const DecodedData& decoded) {
  return {{"images", decoded.images},
          {"clips", decoded.clips},
          {"patches", decoded.patches},
          {"seconds", decoded.seconds},
          {"threads", decoded.threads}};
}

void DataRates::add(const DecodedData& step, double computing_s) {
  if (step.images == 0 && step.clips == 0) {
    return;
  }
  sum_.images += step.images;
  sum_.clips += step.clips;
  sum_.patches += step.patches;
  sum_.seconds += step.seconds;
  sum_.threads = std::max(sum_.threads, step.threads);
  computing_s_ += computing_s;
  ++steps_;
}

std::optional<std::string> DataRates::line_once(bool last) {
  constexpr int kSteps = 4;
  if (shown_ || steps_ == 0 || (steps_ < kSteps && !last)) {
    return std::nullopt;
  }
  shown_ = true;
  if (sum_.seconds <= 0 || computing_s_ <= 0) {
    return std::nullopt;
  }
  return concat("data: ",
                sum_.threads,
                sum_.threads == 1 ? " thread decodes " : " threads decode ",
                rates_text(sum_, sum_.seconds, true),
                sum_.threads == 1 ? "" : " each",
                "; the model takes ",
                rates_text(sum_, computing_s_, false));
}

}  // namespace entrain::engine
