#include "entrain/core/report/alternatives.h"

#include <map>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

std::int64_t step_ns(const oracle::HandCase& hand, const StepAssignment& assignment) {
  const Program program = build_program(hand.plan, assignment, hand.costs, hand.plan.schedule);
  return simulate(program, hand.costs).makespan.count();
}

std::map<AlternativeKind, Alternative> alternatives_of(const oracle::HandCase& hand, int sample) {
  std::map<AlternativeKind, Alternative> result;
  for (const Alternative& alternative :
       best_alternatives(hand.plan, hand.costs, hand.assignment, sample)) {
    result[alternative.kind] = alternative;
  }
  return result;
}

// Three slots; sample 0 has its image in slot 0 and its LLM work in slot 1.
oracle::HandCase deferred_case() {
  return oracle::make_hand_case({1, 1}, 3, {{1, {{0}}}, {1, {{1}}}, {2, {{2}}}, {0, {{0}}}});
}

TEST(BestAlternatives, SimulateWhatTheySay) {
  oracle::HandCase hand = deferred_case();
  const auto found = alternatives_of(hand, 0);
  ASSERT_TRUE(found.contains(AlternativeKind::kNotDeferred));
  EXPECT_EQ(found.at(AlternativeKind::kNotDeferred).slot, 1);
  StepAssignment moved = hand.assignment;
  auto& vision = moved.replicas[0].modules[0];
  std::erase_if(vision[0], [](const WorkItem& item) { return item.sample == 0; });
  vision[1].push_back({.sample = 0, .segment = 0});
  validate_assignment(moved, hand.plan, hand.costs);
  EXPECT_EQ(found.at(AlternativeKind::kNotDeferred).step_change_ns,
            step_ns(hand, moved) - step_ns(hand, hand.assignment));
}

TEST(BestAlternatives, FindTheBestSlot) {
  oracle::HandCase hand = deferred_case();
  const auto found = alternatives_of(hand, 0);
  std::int64_t best = -1;
  for (const int slot : {0, 2}) {
    StepAssignment moved = hand.assignment;
    for (ModuleSlots& slots : moved.replicas[0].modules) {
      for (Slot& items : slots) {
        std::erase_if(items, [](const WorkItem& item) { return item.sample == 0; });
      }
    }
    moved.replicas[0].modules[0][static_cast<std::size_t>(slot)].push_back(
        {.sample = 0, .segment = 0});
    moved.replicas[0].modules[1][static_cast<std::size_t>(slot)].push_back({.sample = 0});
    const std::int64_t time = step_ns(hand, moved);
    best = best < 0 ? time : std::min(best, time);
  }
  EXPECT_EQ(found.at(AlternativeKind::kOtherSlot).step_change_ns,
            best - step_ns(hand, hand.assignment));
}

TEST(BestAlternatives, KeepDeferralLimits) {
  oracle::HandCase hand = deferred_case();
  hand.plan.limits.max_deferral = 1;
  EXPECT_EQ(alternatives_of(hand, 0).at(AlternativeKind::kLlmSlot).slot, 0)
      << "slot 2 would be two slots after the image";
  hand.plan.limits.max_deferral = 0;
  EXPECT_EQ(alternatives_of(hand, 3).count(AlternativeKind::kLlmSlot), 0U);
}

TEST(BestAlternatives, HaveOnlyWhatIsPossible) {
  const oracle::HandCase hand = oracle::make_plain_case({1, 1}, 1);
  EXPECT_TRUE(alternatives_of(hand, 0).empty()) << "one slot, one replica";
}

TEST(BestAlternatives, ReachOtherReplicas) {
  oracle::HandCase hand = deferred_case();
  hand.plan.replicas = 2;
  // The second replica holds sample 2 alone.
  ReplicaAssignment second = hand.assignment.replicas[0];
  for (std::size_t module = 0; module < 2; ++module) {
    for (std::size_t slot = 0; slot < 3; ++slot) {
      std::erase_if(second.modules[module][slot],
                    [](const WorkItem& item) { return item.sample != 2; });
      std::erase_if(hand.assignment.replicas[0].modules[module][slot],
                    [](const WorkItem& item) { return item.sample == 2; });
    }
  }
  hand.assignment.replicas.push_back(second);
  validate_assignment(hand.assignment, hand.plan, hand.costs);
  const auto found = alternatives_of(hand, 0);
  ASSERT_TRUE(found.contains(AlternativeKind::kOtherReplica));
  EXPECT_EQ(found.at(AlternativeKind::kOtherReplica).replica, 1);
  EXPECT_LT(found.at(AlternativeKind::kOtherReplica).step_change_ns, 0)
      << "the first replica has three samples, the second one";
  EXPECT_EQ(alternatives_of(hand, 2).count(AlternativeKind::kOtherReplica), 0U)
      << "its replica would be empty";
}

}  // namespace
}  // namespace entrain
