#include "entrain/core/study/memory_rule.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using oracle::error_of;

TEST(ParseMemoryRule, ReadsWordsAndBytes) {
  EXPECT_EQ(parse_memory_rule("plan").kind, MemoryKind::kPlan);
  EXPECT_EQ(parse_memory_rule("free").kind, MemoryKind::kFree);
  EXPECT_EQ(parse_memory_rule("equal").kind, MemoryKind::kEqual);
  EXPECT_EQ(parse_memory_rule("2000000").bytes, 2000000);
  EXPECT_EQ(parse_memory_rule("2000000").kind, MemoryKind::kBytes);
  EXPECT_EQ(parse_memory_rule("1.5GiB").bytes, std::int64_t{3} << 29);
  EXPECT_EQ(parse_memory_rule("300 MiB").bytes, std::int64_t{300} << 20);
  EXPECT_EQ(parse_memory_rule("2TiB").bytes, std::int64_t{2} << 40);
  EXPECT_EQ(parse_memory_rule("24GB").bytes, 24'000'000'000);
  EXPECT_EQ(parse_memory_rule("3 kB").bytes, 3000);
  EXPECT_EQ(parse_memory_rule("7B").bytes, 7);
}

TEST(ParseMemoryRule, RefusesEverythingElse) {
  for (const char* text : {"", "equals", "0", "-5", "5gb", "5PiB", "1e99", "nan", "GiB", "GB"}) {
    const std::string message = error_of<InvalidInput>([&] { parse_memory_rule(text); });
    EXPECT_NE(message.find("free, equal"), std::string::npos) << text;
  }
}

// Two replicas share eight samples of 100 bytes a stage: 400 bytes each, of which half is 200.
// One encoder lane and one LLM lane: `lpt-2d` with `1f1b` has two slots in flight on the first.
oracle::HandCase eight_samples(int num_slots) {
  oracle::HandCase hand =
      oracle::make_hand_case({1, 1}, 8, std::vector<oracle::HandSample>(8, {0, {{0}}}));
  hand.plan.replicas = 2;
  hand.plan.num_slots = num_slots;
  return hand;
}

TEST(EqualMemory, IsHalfOfTheReplicasActivations) {
  const oracle::HandCase hand = eight_samples(4);
  const std::vector<std::int64_t> limits = equal_memory(hand.plan, hand.costs, 0, 0);
  ASSERT_EQ(limits.size(), 2U);
  EXPECT_EQ(limits[0], 200);
}

TEST(EqualMemory, IsNeverBelowWhatLptNeeds) {
  const oracle::HandCase hand = eight_samples(1);
  const std::vector<std::int64_t> limits = equal_memory(hand.plan, hand.costs, 0, 0);
  EXPECT_EQ(limits[0], 400) << "all samples in one slot";
  EXPECT_EQ(limits[1], 440) << "and their features of 10 bytes each";
}

TEST(ApplyMemoryRule, SetsTheLimitsOfThePlan) {
  oracle::HandCase hand = eight_samples(4);
  hand.plan.limits.lane_bytes = {1, 2};
  Plan plan = hand.plan;
  apply_memory_rule({}, hand.costs, 0, 0, plan);
  EXPECT_EQ(plan.limits, hand.plan.limits);
  apply_memory_rule({MemoryKind::kBytes, 77}, hand.costs, 0, 0, plan);
  EXPECT_EQ(plan.limits.bytes_of(1), 77);
  apply_memory_rule({MemoryKind::kEqual, 0}, hand.costs, 0, 0, plan);
  EXPECT_EQ(plan.limits.lane_bytes, equal_memory(hand.plan, hand.costs, 0, 0));
  apply_memory_rule({MemoryKind::kFree, 0}, hand.costs, 0, 0, plan);
  EXPECT_EQ(plan.limits.bytes_of(0), 0);
}

}  // namespace
}  // namespace entrain
