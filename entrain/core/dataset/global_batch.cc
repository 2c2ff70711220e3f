#include "entrain/core/dataset/global_batch.h"

#include <numeric>
#include <span>
#include <unordered_map>

#include <fmt/format.h>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

void check_step(std::int64_t step) {
  if (step < 0) {
    throw InvalidInput(fmt::format("step {} is negative; steps count from 0", step));
  }
}

}  // namespace

GlobalBatchSampler::GlobalBatchSampler(int num_samples, int global_batch, std::uint64_t seed)
    : num_samples_(num_samples), global_batch_(global_batch), seed_(seed) {
  if (global_batch < 1) {
    throw InvalidInput(fmt::format("global batch {} is below 1", global_batch));
  }
  if (num_samples < global_batch) {
    throw InvalidInput(fmt::format(
        "{} samples are fewer than one global batch of {}; take more data or a smaller batch",
        num_samples,
        global_batch));
  }
}

std::vector<int> GlobalBatchSampler::batch(std::int64_t step) {
  check_step(step);
  const std::int64_t epoch = step / steps_per_epoch();
  if (epoch != epoch_) {
    order_.resize(static_cast<std::size_t>(num_samples_));
    std::iota(order_.begin(), order_.end(), 0);
    Rng rng(seed_, hash_of("global batch") + static_cast<std::uint64_t>(epoch));
    rng.shuffle(std::span<int>(order_));
    epoch_ = epoch;
  }
  const auto begin = order_.begin() + (step % steps_per_epoch()) * global_batch_;
  return {begin, begin + global_batch_};
}

std::vector<SampleSizes> draw_with_replacement(const std::vector<SampleSizes>& samples,
                                               int global_batch,
                                               std::uint64_t seed,
                                               std::int64_t step) {
  check_step(step);
  if (samples.empty() || global_batch < 1) {
    throw InvalidInput(
        fmt::format("cannot draw a global batch of {} from {} samples; both must be at least 1",
                    global_batch,
                    samples.size()));
  }
  Rng rng(seed, hash_of("draw with replacement") + static_cast<std::uint64_t>(step));
  std::unordered_map<std::uint64_t, int> occurrences;
  std::vector<SampleSizes> drawn;
  drawn.reserve(static_cast<std::size_t>(global_batch));
  for (int i = 0; i < global_batch; ++i) {
    const std::uint64_t index = rng.below(samples.size());
    drawn.push_back(samples[index]);
    const int occurrence = ++occurrences[index];
    if (occurrence > 1) {
      drawn.back().id += fmt::format("~{}", occurrence);
    }
  }
  return drawn;
}

}  // namespace entrain
