#include "entrain/engine/train/validation_split.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {

DataSet split_validation(double fraction, std::uint64_t seed, DataSet& train) {
  const std::size_t size = train.index.samples.size();
  const auto share = std::llround(fraction * static_cast<double>(size));
  const auto wanted = static_cast<std::size_t>(std::max(1LL, share));
  if (wanted >= size) {
    throw InvalidInput(concat(
        "data.validation_fraction ", fraction, " of ", size, " samples leaves none to train on"));
  }
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Rng(seed, hash_of("validation split")).shuffle(std::span<std::size_t>(order));
  std::vector<char> taken(size);
  for (std::size_t i = 0; i < wanted; ++i) {
    taken[order[i]] = 1;
  }
  // All but the samples is the same in both.
  std::vector<SampleSizes> samples = std::exchange(train.index.samples, {});
  std::vector<SampleWork> work = std::exchange(train.work, {});
  DataSet validation;
  validation.index = train.index;
  for (std::size_t sample = 0; sample < size; ++sample) {
    DataSet& target = taken[sample] != 0 ? validation : train;
    target.index.samples.push_back(std::move(samples[sample]));
    target.work.push_back(std::move(work[sample]));
  }
  return validation;
}

}  // namespace entrain::engine
