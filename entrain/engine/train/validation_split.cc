#include "entrain/engine/train/validation_split.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string_view>
#include <unordered_set>
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

std::string overlap_warning(const Index& train, const Index& validation) {
  std::unordered_set<std::string_view> trained;
  for (const SampleSizes& sample : train.samples) {
    trained.insert(sample.id);
  }
  std::int64_t count = 0;
  std::vector<std::string> first;
  for (const SampleSizes& sample : validation.samples) {
    if (trained.contains(sample.id)) {
      ++count;
      if (first.size() < 3) {
        first.push_back(sample.id);
      }
    }
  }
  if (count == 0) {
    return "";
  }
  return concat(count,
                " of the ",
                validation.samples.size(),
                " validation samples are training samples too ('",
                join(first, "', '"),
                std::cmp_greater(count, first.size()) ? "' …" : "'",
                "): loss and accuracy on them say nothing of unseen data");
}

}  // namespace entrain::engine
