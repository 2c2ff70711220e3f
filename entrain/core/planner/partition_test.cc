#include "entrain/core/planner/partition.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

namespace entrain {
namespace {

std::int64_t largest_part(const std::vector<std::int64_t>& layers,
                          const std::vector<LayerRange>& parts) {
  std::int64_t largest = 0;
  for (const LayerRange& part : parts) {
    std::int64_t sum = 0;
    for (int layer = part.begin; layer < part.end; ++layer) {
      sum += layers[static_cast<std::size_t>(layer)];
    }
    largest = std::max(largest, sum);
  }
  return largest;
}

// The least largest sum over all cuts of layers [begin, end) into `stages` parts.
std::int64_t least_by_trying(const std::vector<std::int64_t>& layers, int begin, int stages) {
  const int end = static_cast<int>(layers.size());
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t sum = 0;
  for (int cut = begin + 1; cut <= end; ++cut) {
    sum += layers[static_cast<std::size_t>(cut - 1)];
    if (stages == 1) {
      least = cut == end ? sum : least;
    } else if (end - cut >= stages - 1) {
      least = std::min(least, std::max(sum, least_by_trying(layers, cut, stages - 1)));
    }
  }
  return least;
}

TEST(MinMaxPartition, IsAsGoodAsTryingAllCuts) {
  constexpr std::uint64_t kSeed = 3;
  Rng rng(kSeed);
  for (int i = 0; i < 1000; ++i) {
    std::vector<std::int64_t> layers;
    for (std::uint64_t n = 1 + rng.below(9); n > 0; --n) {
      layers.push_back(static_cast<std::int64_t>(rng.below(20)));
    }
    const int num_layers = static_cast<int>(layers.size());
    const int stages = 1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(num_layers)));
    const std::vector<LayerRange> parts = min_max_partition(layers, stages);
    ASSERT_EQ(parts.size(), static_cast<std::size_t>(stages)) << "seed " << kSeed << " case " << i;
    int begin = 0;
    for (const LayerRange& part : parts) {
      ASSERT_EQ(part.begin, begin);
      ASSERT_GT(part.end, part.begin);
      begin = part.end;
    }
    ASSERT_EQ(begin, num_layers);
    ASSERT_EQ(largest_part(layers, parts), least_by_trying(layers, 0, stages))
        << "seed " << kSeed << " case " << i;
  }
}

TEST(MinMaxPartition, EndsEarlierPartsFirst) {
  EXPECT_EQ(min_max_partition({5, 1, 1, 1}, 2), (std::vector<LayerRange>{{0, 1}, {1, 4}}));
}

TEST(MinMaxPartition, HasNoAnswerForMoreStagesThanLayers) {
  EXPECT_TRUE(min_max_partition({1, 1}, 3).empty());
  EXPECT_TRUE(min_max_partition({1, 1}, 0).empty());
}

}  // namespace
}  // namespace entrain
