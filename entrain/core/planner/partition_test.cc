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

// A stage's time and bytes under the rules.
std::int64_t stage_time(const std::vector<std::int64_t>& layers,
                        const StageRules& rules,
                        LayerRange stage) {
  std::int64_t time =
      rules.entry_ns.empty() ? 0 : rules.entry_ns[static_cast<std::size_t>(stage.begin)];
  for (int layer = stage.begin; layer < stage.end; ++layer) {
    time += layers[static_cast<std::size_t>(layer)];
  }
  return time;
}

bool stage_fits(const StageRules& rules, LayerRange stage) {
  std::int64_t bytes = 0;
  for (int layer = stage.begin; layer < stage.end; ++layer) {
    bytes += rules.layer_bytes.empty() ? 0 : rules.layer_bytes[static_cast<std::size_t>(layer)];
  }
  return rules.capacity_bytes == 0 || bytes <= rules.capacity_bytes;
}

// The same over all cuts that fit, by trying; kNoPartition where none does.
std::int64_t least_by_rules(const std::vector<std::int64_t>& layers,
                            const StageRules& rules,
                            int begin,
                            int stages) {
  const int end = static_cast<int>(layers.size());
  std::int64_t least = kNoPartition;
  for (int cut = begin + 1; cut <= end; ++cut) {
    if ((stages == 1) != (cut == end) || !stage_fits(rules, {begin, cut})) {
      continue;
    }
    const std::int64_t rest = stages == 1 ? 0 : least_by_rules(layers, rules, cut, stages - 1);
    if (rest != kNoPartition) {
      const std::int64_t largest = std::max(rest, stage_time(layers, rules, {begin, cut}));
      least = least == kNoPartition ? largest : std::min(least, largest);
    }
  }
  return least;
}

TEST(PartitionLayers, IsAsGoodAsTryingAllCutsWithinTheRules) {
  constexpr std::uint64_t kSeed = 5;
  Rng rng(kSeed);
  int infeasible = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::int64_t> layers;
    StageRules rules;
    const auto num_layers = static_cast<int>(1 + rng.below(10));
    std::int64_t entry = 0;
    for (int layer = 0; layer < num_layers; ++layer) {
      layers.push_back(static_cast<std::int64_t>(rng.below(20)));
      rules.entry_ns.push_back(entry += static_cast<std::int64_t>(rng.below(4)));
      rules.layer_bytes.push_back(static_cast<std::int64_t>(rng.below(20)));
    }
    rules.capacity_bytes = static_cast<std::int64_t>(1 + rng.below(60));
    const std::vector<std::int64_t> all = least_largest_ns(layers, num_layers, rules);
    for (int stages = 1; stages <= num_layers; ++stages) {
      const std::int64_t expected = least_by_rules(layers, rules, 0, stages);
      ASSERT_EQ(all[static_cast<std::size_t>(stages - 1)], expected)
          << "seed " << kSeed << " case " << i << " stages " << stages;
      const Partition found = partition_layers(layers, stages, rules);
      ASSERT_EQ(found.fits(), expected != kNoPartition);
      if (!found.fits()) {
        ++infeasible;
        EXPECT_GT(found.missing_bytes, 0);
        StageRules wider = rules;
        wider.capacity_bytes += found.missing_bytes;
        EXPECT_TRUE(partition_layers(layers, stages, wider).fits());
        wider.capacity_bytes -= 1;
        EXPECT_FALSE(partition_layers(layers, stages, wider).fits());
        continue;
      }
      ASSERT_EQ(found.largest_ns, expected);
      std::int64_t largest = 0;
      for (const LayerRange& stage : found.stages) {
        ASSERT_TRUE(stage_fits(rules, stage));
        largest = std::max(largest, stage_time(layers, rules, stage));
      }
      ASSERT_EQ(largest, expected);
    }
  }
  EXPECT_GT(infeasible, 100);
}

// Six layers whose forward and backward take 1 … 6 each.
TEST(PartitionLayers, CutsRisingLayersAsOobleckDoes) {
  const std::vector<std::int64_t> layers = {2, 4, 6, 8, 10, 12};
  EXPECT_EQ(min_max_partition(layers, 2), (std::vector<LayerRange>{{0, 4}, {4, 6}}));
  EXPECT_EQ(min_max_partition(layers, 3), (std::vector<LayerRange>{{0, 3}, {3, 5}, {5, 6}}));
  EXPECT_EQ(min_max_partition(layers, 4),
            (std::vector<LayerRange>{{0, 3}, {3, 4}, {4, 5}, {5, 6}}));
  EXPECT_EQ(min_max_partition({1, 1, 1, 1, 1, 1}, 2), (std::vector<LayerRange>{{0, 3}, {3, 6}}));
  EXPECT_FALSE(partition_layers(layers, 7).fits());
  const Partition two = partition_layers({2, 3, 4}, 2);
  EXPECT_EQ(two.stages, (std::vector<LayerRange>{{0, 2}, {2, 3}}));
  EXPECT_EQ(two.largest_ns, 5);
}

// Two layers that hold 200 bytes all step long and 100 for each microbatch in flight.
TEST(PartitionLayers, KeepsToTheBytesOfAStage) {
  const auto fits = [](int stages, std::int64_t in_flight, std::int64_t capacity) {
    const StageRules rules{{}, {200 + 100 * in_flight, 200 + 100 * in_flight}, capacity};
    return partition_layers({1, 1}, stages, rules).fits();
  };
  EXPECT_TRUE(fits(1, 3, 1000));
  EXPECT_FALSE(fits(1, 4, 1000));
  EXPECT_TRUE(fits(2, 8, 1000));
  EXPECT_FALSE(fits(2, 9, 1000));
  EXPECT_FALSE(fits(1, 1, 500));
  const Partition none = partition_layers({1, 1}, 1, {{}, {300, 300}, 500});
  EXPECT_EQ(none.missing_bytes, 100);
}

// The largest stage may give up a layer to a faster neighbour that has the bytes for it.
TEST(PartitionLayers, PrefersASlowerCutThatFits) {
  const std::vector<std::int64_t> layers = {4, 4, 4, 4};
  EXPECT_EQ(partition_layers(layers, 2, {{}, {1, 1, 6, 6}, 10}).stages,
            (std::vector<LayerRange>{{0, 3}, {3, 4}}));
}

TEST(MinMaxPartition, EndsEarlierPartsFirst) {
  EXPECT_EQ(min_max_partition({5, 1, 1, 1}, 2), (std::vector<LayerRange>{{0, 1}, {1, 4}}));
}

TEST(MinMaxPartition, HasNoAnswerForMoreStagesThanLayers) {
  EXPECT_TRUE(min_max_partition({1, 1}, 3).empty());
  EXPECT_TRUE(min_max_partition({1, 1}, 0).empty());
}

std::int64_t fullest_lane(const std::vector<std::int64_t>& layers,
                          const std::vector<LayerRange>& stages,
                          int lanes) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(lanes), 0);
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    loads[stage % loads.size()] += largest_part(layers, {stages[stage]});
  }
  return *std::max_element(loads.begin(), loads.end());
}

TEST(WrappedPartition, LevelsLanesOfSeveralStages) {
  // An embedding, 32 layers and a head: 3 + 5 × 6, so that a lane has 9 and two lanes have 12.
  std::vector<std::int64_t> layers(34, 1);
  layers[0] = 0;
  EXPECT_EQ(fullest_lane(layers, min_max_partition(layers, 6), 3), 12);
  const std::vector<LayerRange> stages = wrapped_partition(layers, 3, 2);
  EXPECT_EQ(fullest_lane(layers, stages, 3), 11);
}

TEST(WrappedPartition, IsACutWithNoFullerLaneThanTheFastestStages) {
  Rng rng(67);
  int leveller = 0;
  for (int i = 0; i < 1000; ++i) {
    const int lanes = 1 + static_cast<int>(rng.below(4));
    const int virtual_stages = 1 + static_cast<int>(rng.below(3));
    std::vector<std::int64_t> layers;
    for (auto left = lanes * virtual_stages + static_cast<int>(rng.below(20)); left > 0; --left) {
      layers.push_back(static_cast<std::int64_t>(rng.below(10)));
    }
    const std::vector<LayerRange> before = min_max_partition(layers, lanes * virtual_stages);
    const std::vector<LayerRange> stages = wrapped_partition(layers, lanes, virtual_stages);
    ASSERT_EQ(stages.size(), before.size());
    int end = 0;
    for (const LayerRange& stage : stages) {
      ASSERT_EQ(stage.begin, end);
      ASSERT_GT(stage.end, stage.begin);
      end = stage.end;
    }
    ASSERT_EQ(end, static_cast<int>(layers.size()));
    const std::int64_t fullest = fullest_lane(layers, stages, lanes);
    ASSERT_LE(fullest, fullest_lane(layers, before, lanes));
    leveller += fullest < fullest_lane(layers, before, lanes) ? 1 : 0;
    if (lanes == 1 || virtual_stages == 1) {
      ASSERT_EQ(stages, before);
    }
  }
  EXPECT_GT(leveller, 200);
  EXPECT_TRUE(wrapped_partition({1, 1, 1}, 2, 2).empty());
}

}  // namespace
}  // namespace entrain
