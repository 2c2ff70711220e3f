#include "entrain/core/dataset/mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/at.h"
#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/glob.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();
constexpr int kPortionBits = 32;
constexpr double kMostWeight = 1e12;
constexpr std::int64_t kMostWeightStep = 1'000'000'000;

// draws · portion / 2^32, rounded down, for draws up to 2^61.
std::uint64_t portion_of(std::uint64_t draws, std::uint64_t portion) {
  constexpr std::uint64_t kLow = (std::uint64_t{1} << kPortionBits) - 1;
  return (draws >> kPortionBits) * portion + (((draws & kLow) * portion) >> kPortionBits);
}

double weight_of(const Json& value, const std::string& where) {
  const auto weight = value_as<double>(value, where);
  if (!(weight >= 0 && weight <= kMostWeight)) {
    throw InvalidInput(
        fmt::format("{}: {} given; allowed are 0 to {:g}", where, weight, kMostWeight));
  }
  return weight;
}

// A number, or [[0, 1.0], [1000, 0.5]].
std::vector<MixtureWeight> weights_of(const Json& value, const std::string& where) {
  if (!value.is_array()) {
    return {{0, weight_of(value, where)}};
  }
  std::vector<MixtureWeight> weights;
  for (const auto& [pair, place] : elements_of(value, where)) {
    if (!pair->is_array() || pair->size() != 2) {
      throw InvalidInput(fmt::format("{}: a step and a weight are needed: [1000, 0.5]", place));
    }
    const auto step = value_as<std::int64_t>((*pair)[0], place);
    const std::int64_t least = weights.empty() ? 0 : weights.back().step + 1;
    if (step < least || step > kMostWeightStep || (weights.empty() && step != 0)) {
      throw InvalidInput(fmt::format("{}: step {} given; the first is 0, and they rise up to {}",
                                     place,
                                     step,
                                     kMostWeightStep));
    }
    weights.push_back({step, weight_of((*pair)[1], place)});
  }
  if (weights.empty()) {
    throw InvalidInput(fmt::format("{}: an empty list", where));
  }
  return weights;
}

MixturePart read_part(const std::string& samples, const Json& value, const std::string& where) {
  MixturePart part;
  part.samples = samples;
  if (value.is_number()) {
    part.weights = weights_of(value, where);
    return part;
  }
  ObjectReader reader(value, where);
  if (const Json* weight = reader.find("weight")) {
    part.weights = weights_of(*weight, reader.where("weight"));
  }
  if (const Json* repeat = reader.find("repeat")) {
    if (!part.weights.empty()) {
      reader.fail("repeat", "given beside weight; one of both is needed");
    }
    part.repeat = weight_of(*repeat, reader.where("repeat"));
  }
  part.epochs = reader.optional<std::int64_t>("epochs", 0);
  if (part.epochs < 0 || part.epochs > kMostWeightStep) {
    reader.fail(
        "epochs",
        fmt::format("{} given; allowed are 0 (no end) to {}", part.epochs, kMostWeightStep));
  }
  reader.finish();
  return part;
}

}  // namespace

std::vector<MixturePart> read_mixture(const Json& table, const std::string& where) {
  if (!table.is_object() || table.empty()) {
    throw InvalidInput(fmt::format("{}: a table of at least one part is needed", where));
  }
  std::vector<MixturePart> parts;
  for (const auto& [samples, value] : table.items()) {
    parts.push_back(read_part(samples, value, key_path(where, fmt::format("\"{}\"", samples))));
  }
  return parts;
}

std::vector<MixturePart> read_mixture_file(const std::filesystem::path& path) {
  const Json table = read_toml_file(path);
  for (const auto& [samples, value] : table.items()) {
    // A key of a part that is misspelled is reported as such; a run file has other tables and
    // texts.
    if (value.is_string() || samples == "data" || samples == "mixture") {
      throw InvalidInput(fmt::format(
          "{}: no mixture file, in which every line is a part, the glob of its ids and its weight: "
          "\"llava/*\" = 2; of a run file it holds the lines of [data.mixture], without that "
          "header "
          "(docs/data.md)",
          path.string()));
    }
  }
  return read_mixture(table, path.string());
}

Json to_json(const std::vector<MixturePart>& parts) {
  Json table = Json::object();
  for (const MixturePart& part : parts) {
    Json& entry = table[part.samples] = Json::object();
    if (part.weights.empty()) {
      entry["repeat"] = part.repeat;
    } else {
      for (const MixtureWeight& weight : part.weights) {
        entry["weight"].push_back(Json::array({weight.step, weight.weight}));
      }
    }
    entry["epochs"] = part.epochs;
  }
  return table;
}

Mixture::Mixture(std::vector<MixturePart> parts,
                 std::span<const std::string> ids,
                 int global_batch,
                 std::uint64_t seed)
    : specs_(std::move(parts)), global_batch_(global_batch), seed_(seed) {
  if (global_batch < 1) {
    throw InvalidInput(fmt::format("global batch {} is below 1", global_batch));
  }
  find_parts(ids);
  find_phases();
}

void Mixture::find_parts(std::span<const std::string> ids) {
  parts_.resize(specs_.size());
  for (std::size_t sample = 0; sample < ids.size(); ++sample) {
    const MixturePart* found = nullptr;
    for (std::size_t part = 0; part < specs_.size(); ++part) {
      if (!fits_glob(specs_[part].samples, ids[sample])) {
        continue;
      }
      if (found != nullptr) {
        throw InvalidInput(
            fmt::format("the mixture has sample '{}' in two parts: \"{}\" and \"{}\"",
                        ids[sample],
                        found->samples,
                        specs_[part].samples));
      }
      found = &specs_[part];
      parts_[part].samples.push_back(static_cast<int>(sample));
    }
    if (found == nullptr) {
      throw InvalidInput(fmt::format(
          "the mixture has no part for sample '{}'; a part of weight 0, such as \"*\" = 0 "
          "for all, leaves samples out",
          ids[sample]));
    }
  }
  for (std::size_t part = 0; part < specs_.size(); ++part) {
    if (parts_[part].samples.empty()) {
      throw InvalidInput(
          fmt::format("the mixture's part \"{}\" has no sample", specs_[part].samples));
    }
  }
}

std::vector<double> Mixture::weights_at(std::int64_t draw) const {
  std::vector<double> result;
  for (std::size_t part = 0; part < specs_.size(); ++part) {
    const MixturePart& spec = specs_[part];
    double weight = spec.repeat * static_cast<double>(parts_[part].samples.size());
    for (const MixtureWeight& from : spec.weights) {
      weight = from.step <= draw / global_batch_ ? from.weight : weight;
    }
    result.push_back(weight);
  }
  return result;
}

std::int64_t Mixture::limit_of(std::size_t part) const {
  const std::int64_t epochs = specs_[part].epochs;
  return epochs == 0 ? kNoEnd : epochs * std::ssize(parts_[part].samples);
}

// Shares change where a weight does and where a part is used up.
void Mixture::find_phases() {
  Phase phase;
  phase.drawn.assign(specs_.size(), 0);
  while (true) {
    std::vector<double> weights = weights_at(phase.begin);
    bool all_used_up = true;
    for (std::size_t part = 0; part < weights.size(); ++part) {
      const bool used_up = phase.drawn[part] >= limit_of(part);
      weights[part] = used_up ? 0 : weights[part];
      all_used_up = all_used_up && used_up;
    }
    double rest = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (rest <= 0 && phase.begin == 0) {
      throw InvalidInput("the mixture draws from nothing at step 0: all weights are 0");
    }
    all_used_up = all_used_up || rest <= 0;
    if (all_used_up) {
      end_ = phase.begin;
      break;
    }
    phase.portion.assign(weights.size(), 0);
    // The last part with a weight takes what the others leave.
    std::size_t last = weights.size() - 1;
    while (weights[last] <= 0) {
      --last;
    }
    for (std::size_t part = 0; part <= last; ++part) {
      const double portion = part == last ? 1 : std::min(1.0, weights[part] / rest);
      phase.portion[part] = static_cast<std::uint64_t>(std::ldexp(portion, kPortionBits));
      rest = std::max(rest - weights[part], std::numeric_limits<double>::min());
    }
    phases_.push_back(phase);
    const std::int64_t end = end_of_phase(phases_.back());
    if (end == kNoEnd) {
      break;
    }
    phase.drawn = drawn_before(phases_.back(), end);
    phase.begin = end;
  }
}

std::vector<std::int64_t> Mixture::drawn_before(const Phase& phase, std::int64_t draw) {
  std::vector<std::int64_t> result = phase.drawn;
  auto left = static_cast<std::uint64_t>(draw - phase.begin);
  for (std::size_t part = 0; part < result.size(); ++part) {
    const std::uint64_t taken = portion_of(left, phase.portion[part]);
    result[part] += static_cast<std::int64_t>(taken);
    left -= taken;
  }
  return result;
}

std::int64_t Mixture::end_of_phase(const Phase& phase) const {
  std::int64_t end = kNoEnd;
  for (std::size_t part = 0; part < specs_.size(); ++part) {
    for (const MixtureWeight& from : specs_[part].weights) {
      if (from.step * global_batch_ > phase.begin) {
        end = std::min(end, from.step * global_batch_);
      }
    }
    if (limit_of(part) == kNoEnd || phase.portion[part] == 0) {
      continue;
    }
    // The first draw before which the part has all that it may have.
    std::int64_t low = phase.begin;
    std::int64_t high = std::min(end, std::int64_t{1} << 61);
    if (drawn_before(phase, high)[part] < limit_of(part)) {
      continue;
    }
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (drawn_before(phase, middle)[part] >= limit_of(part) ? high : low) = middle;
    }
    end = high;
  }
  return end;
}

const Mixture::Phase& Mixture::phase_of(std::int64_t draw) const {
  const auto behind = std::upper_bound(
      phases_.begin(), phases_.end(), draw, [](std::int64_t value, const Phase& phase) {
        return value < phase.begin;
      });
  return *(behind - 1);
}

int Mixture::sample_of(std::size_t part, std::int64_t number) {
  Part& of = parts_[part];
  const std::int64_t pass = number / std::ssize(of.samples);
  if (pass != of.pass) {
    of.order = of.samples;
    Rng rng(seed_, hash_of("mixture " + specs_[part].samples) + static_cast<std::uint64_t>(pass));
    rng.shuffle(std::span<int>(of.order));
    of.pass = pass;
  }
  return of.order[at(number % std::ssize(of.samples))];
}

std::vector<int> Mixture::rows(std::int64_t step) {
  if (step < 0) {
    throw InvalidInput(fmt::format("step {} is negative; steps count from 0", step));
  }
  if (const std::optional<std::int64_t> steps = num_steps(); steps && step >= *steps) {
    throw InvalidInput(
        fmt::format("step {} of a mixture that ends after {} whole steps of {} samples, when its "
                    "parts are used up or weigh 0; let a part go on without `epochs`, or train "
                    "fewer steps",
                    step,
                    *steps,
                    global_batch_));
  }
  std::vector<int> rows;
  for (std::int64_t draw = step * global_batch_; draw < (step + 1) * global_batch_; ++draw) {
    const Phase& phase = phase_of(draw);
    const std::vector<std::int64_t> before = drawn_before(phase, draw);
    const std::vector<std::int64_t> behind = drawn_before(phase, draw + 1);
    std::size_t part = 0;
    while (before[part] == behind[part]) {
      ++part;
    }
    rows.push_back(sample_of(part, before[part]));
  }
  return rows;
}

std::optional<std::int64_t> Mixture::num_steps() const {
  return end_ < 0 ? std::nullopt : std::optional(end_ / global_batch_);
}

std::vector<Mixture::Share> Mixture::shares(std::int64_t steps) const {
  const std::int64_t draws = steps * global_batch_;
  const std::vector<std::int64_t> drawn =
      draws == 0 ? phases_.front().drawn : drawn_before(phase_of(draws - 1), draws);
  std::vector<Share> result;
  for (std::size_t part = 0; part < specs_.size(); ++part) {
    result.push_back({specs_[part].samples, std::ssize(parts_[part].samples), drawn[part]});
  }
  return result;
}

}  // namespace entrain
