#include "entrain/core/study/made_up.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

constexpr int kSamples = 8000;
constexpr int kMergedPixels = 28;  // a side of what one LLM token of an image shows

struct MadeUp {
  const char* name;
  double text_median;
  double text_spread;  // of the logarithm
  double image_median;
  double image_spread;
};
// Chosen before the first run.
constexpr std::array<MadeUp, 2> kMadeUp = {
    {{"made-up-charts", 180, 0.8, 1400, 1.0}, {"made-up-chats", 300, 0.7, 500, 0.6}}};

const MadeUp* made_up_of(const std::string& name) {
  const auto* found = std::find_if(
      kMadeUp.begin(), kMadeUp.end(), [&](const MadeUp& one) { return name == one.name; });
  return found == kMadeUp.end() ? nullptr : found;
}

}  // namespace

std::vector<std::string> made_up_names() {
  std::vector<std::string> names;
  for (const MadeUp& one : kMadeUp) {
    names.emplace_back(one.name);
  }
  return names;
}

bool is_made_up(const std::string& name) {
  return made_up_of(name) != nullptr;
}

void write_made_up(const std::string& name, const std::filesystem::path& path) {
  const MadeUp* sizes = made_up_of(name);
  ENTRAIN_INVARIANT(sizes != nullptr, "no made-up data set " + name);
  Rng rng(2026, static_cast<std::uint64_t>(sizes - kMadeUp.data()));
  const auto drawn = [&rng](double median, double spread, double low, double high) {
    return std::clamp(std::round(median * std::exp(spread * rng.normal())), low, high);
  };
  std::string text =
      "sample_id,n_images,image_sizes,audio_seconds,video_seconds,video_frames,video_size,"
      "prompt_chars,response_chars,text_chars,prompt_tokens_estimate,response_tokens_estimate,"
      "text_tokens_estimate\n";
  for (int i = 0; i < kSamples; ++i) {
    const double tokens = drawn(sizes->image_median, sizes->image_spread, 32, 16384);
    const double aspect = std::exp(0.4 * rng.normal());
    const auto columns = std::max(1LL, std::llround(std::sqrt(tokens * aspect)));
    const auto rows = std::max(1LL, std::llround(tokens / static_cast<double>(columns)));
    const auto words = std::llround(drawn(sizes->text_median, sizes->text_spread, 32, 1024));
    const auto answer = std::max(1LL, words / 4);
    text += fmt::format("{}-{},1,{}x{},,,,,{},{},{},{},{},{}\n",
                        name,
                        i,
                        columns * kMergedPixels,
                        rows * kMergedPixels,
                        4 * (words - answer),
                        4 * answer,
                        4 * words,
                        words - answer,
                        answer,
                        words);
  }
  write_file(path, text);
}

}  // namespace entrain
