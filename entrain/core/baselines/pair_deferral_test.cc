#include "entrain/core/baselines/pair_deferral.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

namespace entrain {
namespace {

using Slots = std::vector<std::vector<std::int64_t>>;

std::int64_t load_of(const std::vector<std::int64_t>& slot) {
  return std::accumulate(slot.begin(), slot.end(), std::int64_t{0});
}

std::int64_t larger_after(const Slots& slots, int i, int j) {
  const std::vector<std::int64_t>& over = slots[static_cast<std::size_t>(i)];
  const std::int64_t other = load_of(slots[static_cast<std::size_t>(j)]);
  std::int64_t moved = 0;
  for (const int entry : closest_subset(over, (load_of(over) - other) / 2)) {
    moved += over[static_cast<std::size_t>(entry)];
  }
  return std::min(load_of(over), std::max(load_of(over) - moved, other + moved));
}

TEST(ClosestSubset, ComesNearestToTheTarget) {
  EXPECT_EQ(closest_subset({9, 8, 1, 3}, 4), (std::vector<int>{2, 3}));
  EXPECT_EQ(closest_subset({9, 8, 1, 3}, 21), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(closest_subset({10, 6}, 4), std::vector<int>{1});
  EXPECT_TRUE(closest_subset({10}, 4).empty());
  EXPECT_TRUE(closest_subset({}, 4).empty());
  EXPECT_TRUE(closest_subset({0, 0}, 0).empty());
}

TEST(ClosestSubset, IsWithinAStepPerEntryOfTheBest) {
  Rng rng(8, 1);
  for (int i = 0; i < 500; ++i) {
    std::vector<std::int64_t> work(1 + rng.below(7));
    for (std::int64_t& value : work) {
      value = static_cast<std::int64_t>(rng.below(1'000'000));
    }
    const std::int64_t total = load_of(work);
    const auto target = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(total) + 1));
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    for (unsigned subset = 0; subset < 1U << work.size(); ++subset) {
      std::int64_t sum = 0;
      for (std::size_t entry = 0; entry < work.size(); ++entry) {
        sum += (subset >> entry & 1U) != 0 ? work[entry] : 0;
      }
      best = std::min(best, std::abs(sum - target));
    }
    std::int64_t found = 0;
    for (const int entry : closest_subset(work, target)) {
      found += work[static_cast<std::size_t>(entry)];
    }
    const auto steps = static_cast<std::int64_t>(work.size() + 1);
    ASSERT_LE(std::abs(found - target), best + steps * (total / 1024 + 1));
  }
}

TEST(PairSlots, MatchesSoThatTheLargestLoadIsLeast) {
  // Loads 16, 4, 12, 8. The larger after deferral: 16 with 8: 14, with 4: 10; 12 with 8: 11, with
  // 4:
  // 9. Both need a partner at 11, so 16 gets 4 and 12 gets 8.
  const std::vector<SlotPair> expected = {{0, 1, {1}}, {2, 3, {1}}};
  EXPECT_EQ(pair_slots({{10, 6}, {4}, {9, 3}, {8}}, true), expected);
}

// Figure 9 of the paper: 18 units of encoder work in six microbatches of three, 36 of LLM work. The
// bottleneck is 6, and every microbatch has 6 after deferral.
TEST(PairSlots, SolvesThePapersExample) {
  const Slots slots = {{2, 6}, {3, 6}, {6}, {3}, {4}, {6}};
  const std::vector<SlotPair> pairs = pair_slots(slots, true);
  const std::vector<SlotPair> expected = {{1, 3, {0}}, {0, 4, {0}}, {2, 5, {}}};
  EXPECT_EQ(pairs, expected);
  for (const SlotPair& pair : pairs) {
    std::int64_t moved = 0;
    for (const int entry : pair.deferred) {
      moved += slots[static_cast<std::size_t>(pair.overloaded)][static_cast<std::size_t>(entry)];
    }
    EXPECT_EQ(load_of(slots[static_cast<std::size_t>(pair.overloaded)]) - moved, 6);
    EXPECT_EQ(load_of(slots[static_cast<std::size_t>(pair.underloaded)]) + moved, 6);
  }
}

TEST(PairSlots, DefersNothingBelowTheBottleneck) {
  // 20 is one sample and cannot shrink, so 10 has no need to.
  const std::vector<SlotPair> expected = {{0, 3, {}}, {1, 2, {}}};
  EXPECT_EQ(pair_slots({{20}, {6, 4}, {1}, {2}}, true), expected);
}

TEST(PairSlots, LeavesTheOddSlotAlone) {
  const std::vector<SlotPair> expected = {{0, 2, {}}, {1, -1, {}}};
  EXPECT_EQ(pair_slots({{9}, {5}, {4}}, true), expected);
  const std::vector<SlotPair> single = {{0, -1, {}}};
  EXPECT_EQ(pair_slots({{3, 4}}, true), single);
}

TEST(PairSlots, DefersNothingWhenDisabled) {
  const std::vector<SlotPair> expected = {{0, 3, {}}, {2, 1, {}}};
  EXPECT_EQ(pair_slots({{10, 6}, {4}, {9, 3}, {8}}, false), expected);
}

TEST(PairSlots, ReachesTheBottleneckOfAllPairings) {
  Rng rng(8, 2);
  for (int i = 0; i < 1000; ++i) {
    Slots slots(1 + rng.below(7));
    for (std::vector<std::int64_t>& slot : slots) {
      slot.resize(1 + rng.below(3));
      for (std::int64_t& value : slot) {
        value = static_cast<std::int64_t>(rng.below(20));
      }
    }
    const std::vector<SlotPair> pairs = pair_slots(slots, true);
    std::int64_t largest = 0;
    std::vector<int> over;
    std::vector<int> under;
    for (const SlotPair& pair : pairs) {
      over.push_back(pair.overloaded);
      std::int64_t left = load_of(slots[static_cast<std::size_t>(pair.overloaded)]);
      std::int64_t joined = 0;
      if (pair.underloaded >= 0) {
        under.push_back(pair.underloaded);
        joined = load_of(slots[static_cast<std::size_t>(pair.underloaded)]);
      }
      for (const int entry : pair.deferred) {
        const std::int64_t work =
            slots[static_cast<std::size_t>(pair.overloaded)][static_cast<std::size_t>(entry)];
        left -= work;
        joined += work;
      }
      largest = std::max({largest, left, joined});
    }
    ASSERT_EQ(over.size() + under.size(), slots.size());
    ASSERT_EQ(over.size() - under.size(), slots.size() % 2);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    under.resize(over.size(), -1);
    std::sort(under.begin(), under.end());
    do {
      std::int64_t of_pairing = 0;
      for (std::size_t k = 0; k < over.size(); ++k) {
        of_pairing = std::max(of_pairing,
                              under[k] < 0 ? load_of(slots[static_cast<std::size_t>(over[k])])
                                           : larger_after(slots, over[k], under[k]));
      }
      least = std::min(least, of_pairing);
    } while (std::next_permutation(under.begin(), under.end()));
    ASSERT_EQ(largest, least) << "case " << i;
  }
}

}  // namespace
}  // namespace entrain
