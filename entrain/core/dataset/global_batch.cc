#include "entrain/core/dataset/global_batch.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

void check_step(std::int64_t step) {
  if (step < 0) {
    throw InvalidInput(fmt::format("step {} is negative; steps count from 0", step));
  }
}

std::vector<int> rows_with_replacement(int num_samples,
                                       int global_batch,
                                       std::uint64_t seed,
                                       std::int64_t step) {
  check_step(step);
  if (num_samples < 1 || global_batch < 1) {
    throw InvalidInput(
        fmt::format("cannot draw a global batch of {} from {} samples; both must be at least 1",
                    global_batch,
                    num_samples));
  }
  Rng rng(seed, hash_of("draw with replacement") + static_cast<std::uint64_t>(step));
  std::vector<int> rows;
  rows.reserve(static_cast<std::size_t>(global_batch));
  for (int i = 0; i < global_batch; ++i) {
    rows.push_back(static_cast<int>(rng.below(static_cast<std::uint64_t>(num_samples))));
  }
  return rows;
}

// The step's share of its window, whose steps `draw` gives.
template <class Draw>
std::vector<int> held_rows(int global_batch,
                           std::int64_t step,
                           const Hold& hold,
                           const Draw& draw) {
  if (hold.steps == 1) {
    return draw(step);
  }
  const std::int64_t first = step - step % hold.steps;
  std::vector<int> window;
  for (std::int64_t other = first; other < first + hold.steps; ++other) {
    const std::vector<int> rows = draw(other);
    window.insert(window.end(), rows.begin(), rows.end());
  }
  window = hold_oversized(window, hold.steps, hold.weights);
  const auto begin = window.begin() + (step - first) * global_batch;
  return {begin, begin + global_batch};
}

void check_hold(const Hold& hold) {
  if (hold.steps < 1 || hold.steps > kMostHeldSteps) {
    throw InvalidInput(fmt::format(
        "samples held within {} steps; allowed are 1 to {}", hold.steps, kMostHeldSteps));
  }
}

}  // namespace

std::vector<int> epoch_rows(int num_samples, std::uint64_t seed, std::int64_t epoch) {
  std::vector<int> rows(static_cast<std::size_t>(num_samples));
  std::iota(rows.begin(), rows.end(), 0);
  Rng rng(seed, hash_of("global batch") + static_cast<std::uint64_t>(epoch));
  rng.shuffle(std::span<int>(rows));
  return rows;
}

GlobalBatchSampler::GlobalBatchSampler(
    int num_samples, int global_batch, std::uint64_t seed, LastBatch last, Hold hold)
    : num_samples_(num_samples),
      global_batch_(global_batch),
      seed_(seed),
      last_(last),
      hold_(hold) {
  if (global_batch < 1) {
    throw InvalidInput(fmt::format("global batch {} is below 1", global_batch));
  }
  if (num_samples < global_batch) {
    throw InvalidInput(
        fmt::format("{}, fewer than one global batch of {}; take more data or a smaller batch",
                    counted(num_samples, "sample"),
                    global_batch));
  }
  check_hold(hold);
  ENTRAIN_INVARIANT(hold.steps == 1 || std::cmp_equal(hold.weights.size(), num_samples),
                    "a weight for every sample");
}

GlobalBatchSampler::GlobalBatchSampler(Mixture mixture, int global_batch, Hold hold)
    : mixture_(std::move(mixture)), global_batch_(global_batch), hold_(hold) {
  check_hold(hold);
}

std::int64_t GlobalBatchSampler::steps_per_epoch() const {
  ENTRAIN_INVARIANT(!mixture_.has_value(), "a mixture has no epochs");
  const int rest = num_samples_ % global_batch_;
  return num_samples_ / global_batch_ + (last_ == LastBatch::kKeep && rest > 0 ? 1 : 0);
}

int GlobalBatchSampler::last_batch() const {
  const int rest = num_samples_ % global_batch_;
  return last_ == LastBatch::kKeep && rest > 0 ? rest : global_batch_;
}

int GlobalBatchSampler::left_out_per_epoch() const {
  return last_ == LastBatch::kDrop ? num_samples_ % global_batch_ : 0;
}

std::vector<int> GlobalBatchSampler::batch(std::int64_t step) {
  check_step(step);
  if (mixture_.has_value()) {
    return held_rows(
        global_batch_, step, hold_, [&](std::int64_t one) { return mixture_->rows(one); });
  }
  const std::int64_t epoch = step / steps_per_epoch();
  if (epoch != epoch_) {
    order_ = epoch_rows(num_samples_, seed_, epoch);
    epoch_ = epoch;
    held_.clear();
  }
  const std::int64_t in_epoch = step % steps_per_epoch();
  hold_window_of(in_epoch);
  const auto begin = order_.begin() + in_epoch * global_batch_;
  return {begin, begin + (in_epoch + 1 < steps_per_epoch() ? global_batch_ : last_batch())};
}

void GlobalBatchSampler::hold_window_of(std::int64_t step_in_epoch) {
  const std::int64_t whole_steps = num_samples_ / global_batch_;
  const std::int64_t window = step_in_epoch / hold_.steps;
  if (hold_.steps == 1 || step_in_epoch >= whole_steps || !held_.insert(window).second) {
    return;
  }
  const std::int64_t first = window * hold_.steps;
  const auto steps = static_cast<int>(std::min<std::int64_t>(hold_.steps, whole_steps - first));
  const std::span<int> rows = std::span<int>(order_).subspan(
      at(first * global_batch_), at(std::int64_t{steps} * global_batch_));
  std::ranges::copy(hold_oversized(rows, steps, hold_.weights), rows.begin());
}

std::vector<int> draw_study_rows(
    int num_samples, int global_batch, std::uint64_t seed, std::int64_t step, const Hold& hold) {
  if (!drawn_with_replacement(num_samples, global_batch)) {
    return GlobalBatchSampler(num_samples, global_batch, seed, LastBatch::kDrop, hold).batch(step);
  }
  check_step(step);
  return held_rows(global_batch, step, hold, [&](std::int64_t one) {
    return rows_with_replacement(num_samples, global_batch, seed, one);
  });
}

std::vector<std::string> unique_names(std::vector<std::string> ids) {
  std::unordered_map<std::string, int> occurrences;
  for (std::string& id : ids) {
    const int occurrence = ++occurrences[id];
    if (occurrence > 1) {
      id += fmt::format("~{}", occurrence);
    }
  }
  return ids;
}

std::vector<SampleSizes> draw_with_replacement(const std::vector<SampleSizes>& samples,
                                               int global_batch,
                                               std::uint64_t seed,
                                               std::int64_t step) {
  const std::vector<int> rows =
      rows_with_replacement(static_cast<int>(samples.size()), global_batch, seed, step);
  std::vector<SampleSizes> drawn;
  std::vector<std::string> ids;
  for (const int row : rows) {
    drawn.push_back(samples[static_cast<std::size_t>(row)]);
    ids.push_back(drawn.back().id);
  }
  ids = unique_names(std::move(ids));
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    drawn[i].id = ids[i];
  }
  return drawn;
}

}  // namespace entrain
