#include <string>

#include <gtest/gtest.h>

#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using oracle::compute_text;
using oracle::HandCase;
using oracle::make_hand_case;
using oracle::make_plain_case;

// Lane s hosts stage s of every module.
HandCase colocated(int modules, int lanes, int slots) {
  HandCase hand_case =
      make_plain_case(std::vector<int>(static_cast<std::size_t>(modules), lanes), slots);
  hand_case.plan.lanes.assign(static_cast<std::size_t>(lanes), {});
  for (int lane = 0; lane < lanes; ++lane) {
    for (int module = 0; module < modules; ++module) {
      hand_case.plan.lanes[static_cast<std::size_t>(lane)].push_back({module, lane});
    }
  }
  return hand_case;
}

Program build_dip(const HandCase& hand_case, std::string_view schedule = "dip") {
  Program program = build_program(hand_case.plan, hand_case.assignment, hand_case.costs, schedule);
  validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs);
  return program;
}

std::int64_t makespan_of_dip(const HandCase& hand_case, std::string_view schedule) {
  return simulate(build_dip(hand_case, schedule), hand_case.costs).makespan.count();
}

// Forward 10 ns, backward 20 ns. Lane 1 has its first backward at 40 ns and takes turns from there
// on, the LLM first: vision1:F2, ready at 50 ns, runs at 90. Lane 0 fills its wait with the
// encoder's forwards.
TEST(Dip, TakesTurnsBetweenForwardsAndBackwards) {
  const Program program = build_dip(colocated(2, 2, 3));
  EXPECT_EQ(compute_text(program, 0, 0),
            "vision0:F0 vision0:F1 llm0:F0 llm0:F1 vision0:F2 llm0:B0 "
            "llm0:B1 llm0:F2 vision0:B0 llm0:B2 vision0:B1 vision0:B2");
  EXPECT_EQ(compute_text(program, 0, 1),
            "vision1:F0 vision1:F1 llm1:F0 llm1:B0 llm1:F1 llm1:B1 vision1:F2 vision1:B0 "
            "llm1:F2 llm1:B2 vision1:B1 vision1:B2");
}

TEST(Dip, IsNoSlowerThanTurnsOnCoLocatedLanes) {
  for (const int modules : {2, 3}) {
    for (const int lanes : {2, 4}) {
      for (const int slots : {1, 4, 9}) {
        const HandCase hand_case = colocated(modules, lanes, slots);
        EXPECT_LE(makespan_of_dip(hand_case, "dip"), makespan_of_dip(hand_case, "1f1b"))
            << modules << " modules, " << lanes << " lanes, " << slots << " slots";
      }
    }
  }
}

TEST(Dip, CarriesDeferralAndEmptySlots) {
  HandCase hand_case =
      make_hand_case({2, 2}, 4, {{0, {{0}}}, {2, {{0}}}, {2, {{1, 2}}}, {3, {{}}}});
  hand_case.plan.lanes = {{{0, 0}, {1, 0}}, {{0, 1}, {1, 1}}};
  const std::string text = compute_text(build_dip(hand_case), 0, 0);
  EXPECT_EQ(text.find("llm0:F1"), std::string::npos) << text;
  EXPECT_NE(text.find("vision0:B0.1"), std::string::npos) << text;
}

TEST(Dip, TakesFrozenModules) {
  HandCase encoder = colocated(2, 2, 3);
  set_trainable(encoder, 0, false);
  EXPECT_EQ(compute_text(build_dip(encoder), 0, 0).find("vision0:B"), std::string::npos);
  HandCase llm = colocated(2, 2, 3);
  set_trainable(llm, 1, false);
  EXPECT_NE(compute_text(build_dip(llm), 0, 0).find("llm0:B2"), std::string::npos);
}

TEST(Dip, TakesTextAndManyStages) {
  HandCase text = make_hand_case({2, 2}, 2, {{0, {{}}}, {1, {{}}}});
  text.plan.lanes = {{{0, 0}, {1, 0}}, {{0, 1}, {1, 1}}};
  EXPECT_EQ(compute_text(build_dip(text), 0, 1), "llm1:F0 llm1:B0 llm1:F1 llm1:B1");
  EXPECT_GT(makespan_of_dip(colocated(2, 128, 3), "dip"), 128 * 60);
}

// No other lane to run ahead of: slot by slot.
TEST(Dip, RunsASingleLaneAsOneFOneB) {
  HandCase single = make_plain_case({1, 1}, 4);
  single.plan.lanes = {{{0, 0}, {1, 0}}};
  EXPECT_EQ(build_dip(single).replicas[0].lanes, build_dip(single, "1f1b").replicas[0].lanes);
}

}  // namespace
}  // namespace entrain
