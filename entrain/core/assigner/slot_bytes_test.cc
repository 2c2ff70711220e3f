#include "entrain/core/assigner/slot_bytes.h"

#include <algorithm>

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

}  // namespace
}  // namespace entrain
