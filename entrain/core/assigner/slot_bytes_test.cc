#include "entrain/core/assigner/slot_bytes.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/random.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

constexpr std::int64_t kLimit = 5000;

// A lane per stage: vision 2, LLM 3. Sample i leaves 100 × (i % 7) bytes on each.
oracle::HandCase sized_case() {
  oracle::HandCase hand = oracle::make_plain_case({2, 3}, 40);
  hand.plan.limits.bytes_per_lane = kLimit;
  for (ModuleCosts& module : hand.costs.modules) {
    for (StageCosts& stage : module.stages) {
      for (std::size_t i = 0; i < stage.units.size(); ++i) {
        stage.units[i].activation_bytes = 100 * static_cast<std::int64_t>(i % 7);
      }
    }
  }
  return hand;
}

// The first lane is in flight with as many slots as there are stages up to the loss: five.
TEST(SlotBytes, IsTheFullestWindowOfTheFirstLane) {
  const oracle::HandCase hand = sized_case();
  Rng rng(7, 7);
  for (const int num_slots : {1, 3, 5, 6, 12}) {
    SlotBytes room(hand.plan, num_slots, 50);
    const auto all_bytes = activations_of(hand.plan, hand.costs);
    std::vector<std::int64_t> of_slot(at(num_slots), 0);
    for (int sample = 0; sample < 40; ++sample) {
      const int slot = static_cast<int>(rng.below(static_cast<std::uint64_t>(num_slots)));
      const std::vector<double>& bytes = all_bytes[at(sample)];
      std::int64_t fullest = 0;
      for (int first = std::max(0, slot - 4); first <= slot; ++first) {
        std::int64_t held = 0;
        for (int inside = first; inside < std::min(num_slots, first + 5); ++inside) {
          held += of_slot[at(inside)];
        }
        fullest = std::max(fullest, held);
      }
      const std::int64_t mine = 100 * (sample % 7);
      ASSERT_DOUBLE_EQ(room.use(bytes, slot), static_cast<double>(fullest + mine) / (0.5 * kLimit));
      room.add(bytes, slot);
      of_slot[at(slot)] += mine;
    }
  }
}

TEST(SlotBytes, OfLanesWithoutALimitAreFree) {
  oracle::HandCase hand = sized_case();
  hand.plan.limits.bytes_per_lane = 0;
  const SlotBytes room(hand.plan, 4, 100);
  EXPECT_EQ(room.use(activations_of(hand.plan, hand.costs)[6], 2), 0.0);
}

// Eight samples that fill the limit but for four of the light ones, drawn first: two replicas of
// twenty slots have room for four of them each, five slots apart.
TEST(OneSampleASlot, KeepsLargeSamplesApart) {
  oracle::HandCase hand = sized_case();
  hand.plan.replicas = 2;
  for (ModuleCosts& module : hand.costs.modules) {
    for (StageCosts& stage : module.stages) {
      for (std::size_t sample = 0; sample < stage.units.size(); ++sample) {
        stage.units[sample].activation_bytes = sample < 8 ? kLimit - 40 : 10;
      }
    }
  }
  const AssignRequest request{.plan = &hand.plan, .costs = &hand.costs};
  const Placement placement = one_sample_a_slot(request);
  for (int replica = 0; replica < 2; ++replica) {
    std::vector<std::int64_t> of_slot(20, 0);
    for (const int sample : placement.samples[at(replica)]) {
      std::int64_t& bytes = of_slot[at(placement.llm_slot[at(sample)])];
      EXPECT_EQ(bytes, 0);
      bytes = sample < 8 ? kLimit - 40 : 10;
    }
    for (int first = 0; first + 5 <= 20; ++first) {
      EXPECT_LE(std::accumulate(of_slot.begin() + first, of_slot.begin() + first + 5, 0L), kLimit);
    }
  }
}

}  // namespace
}  // namespace entrain
