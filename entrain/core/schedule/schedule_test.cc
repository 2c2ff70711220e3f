#include "entrain/core/schedule/schedule.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/schedules.h"

namespace entrain {
namespace {

using oracle::HandCase;
using oracle::lane_text;
using oracle::make_plain_case;

Program build_any(const HandCase& hand_case, std::string_view schedule) {
  return build_program(hand_case.plan, hand_case.assignment, hand_case.costs, schedule);
}

TEST(BuildProgram, KnowsItsSchedules) {
  EXPECT_EQ(schedule_names(),
            (std::vector<std::string>{"gpipe",
                                      "1f1b",
                                      "1f1b-eager",
                                      "zb-h1",
                                      "zb-h2",
                                      "interleaved",
                                      "dip",
                                      "entrain",
                                      "entrain-fused"}));
}

// Plain plans, virtual stages, modules that share lanes: each schedule runs what it is made for.
TEST(ScheduleObjection, SaysWhatAPlanLacks) {
  HandCase apart = make_plain_case({2, 2}, 3);
  HandCase wrapped = apart;
  wrapped.plan.lanes = {{{0, 0}, {0, 1}}, {{1, 0}, {1, 1}}};
  HandCase shared = apart;
  shared.plan.lanes = {{{0, 0}, {1, 0}}, {{0, 1}, {1, 1}}};
  const auto objects = [](std::string_view schedule, const HandCase& of, const char* text) {
    EXPECT_NE(schedule_objection(schedule, of.plan).find(text), std::string::npos)
        << schedule_objection(schedule, of.plan);
    try {
      build_any(of, schedule);
      ADD_FAILURE() << schedule << " accepted";
    } catch (const InvalidInput& error) {
      EXPECT_NE(std::string(error.what()).find("cannot run this plan: it needs"), std::string::npos)
          << error.what();
    }
  };
  for (const std::string& name : schedule_names()) {
    if (name != "interleaved" && name != "dip") {
      for (const HandCase* of : {&apart, &wrapped, &shared}) {
        EXPECT_EQ(schedule_objection(name, of->plan), "");
        EXPECT_EQ(build_any(*of, name).schedule, name);
      }
    }
  }
  objects("interleaved", apart, "--virtual-stages");
  objects("interleaved", shared, "module 'vision'");
  EXPECT_EQ(build_any(wrapped, "interleaved").schedule, "interleaved");
  objects("dip", apart, "--layout shared");
  objects("dip", wrapped, "every module");
  EXPECT_EQ(build_any(shared, "dip").schedule, "dip");
  HandCase text_only = make_plain_case({2}, 3);
  objects("dip", text_only, "an encoder's among them");
}

// Halves in a plain program exactly where the schedule says so; the bounds rely on it.
TEST(BuildProgram, SplitsBackwardsWhereItSays) {
  const HandCase hand_case = make_plain_case({1, 2}, 4);
  for (const std::string& name : oracle::schedules_for(hand_case.plan)) {
    const std::string text = oracle::compute_text(build_any(hand_case, name), 0, 1);
    if (!splits_backward(name)) {
      EXPECT_EQ(text.find('W'), std::string::npos) << name << ": " << text;
    } else if (name.starts_with("zb")) {
      EXPECT_NE(text.find('W'), std::string::npos) << name << ": " << text;
    }
  }
}

TEST(BuildProgram, SuggestsAScheduleForAMistypedName) {
  try {
    build_any(make_plain_case({1, 1}, 1), "gpip");
    FAIL() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("'gpipe'"), std::string::npos) << error.what();
  }
}

TEST(BuildProgram, TakesChunksUnderEverySchedule) {
  HandCase hand_case = make_plain_case({1, 2}, 3);
  cut_sample(hand_case, 0, {0, 1, 2}, {0, 4, 8});
  cut_sample(hand_case, 1, {1, 2}, {0, 6});
  for (const std::string& schedule : oracle::schedules_for(hand_case.plan)) {
    const Program program = build_any(hand_case, schedule);
    EXPECT_NO_THROW(
        validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs))
        << schedule;
  }
}

TEST(BuildProgram, NoticesAnAssignmentOfAnotherPlan) {
  HandCase hand_case = make_plain_case({1, 1}, 2);
  hand_case.plan.replicas = 2;
  EXPECT_THROW(build_any(hand_case, "1f1b"), InternalError);
}

TEST(BuildProgram, ReducesGradientsOfTrainableLanesOfSeveralReplicas) {
  HandCase hand_case = make_plain_case({1, 1}, 1);
  hand_case.plan.replicas = 2;
  ReplicaAssignment empty = hand_case.assignment.replicas[0];
  empty.modules.assign(2, ModuleSlots(1));
  hand_case.assignment.replicas.push_back(empty);
  set_trainable(hand_case, 0, false);
  const Program program = build_any(hand_case, "1f1b");
  validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs);
  EXPECT_EQ(lane_text(program, 0, 0), "F0 >F0 clip step");
  EXPECT_EQ(lane_text(program, 0, 1), "<F0 F0 B0 reduce clip step");
  EXPECT_EQ(lane_text(program, 1, 0), "clip step");
  EXPECT_EQ(lane_text(program, 1, 1), "reduce clip step");
  // Shared out, what is updated comes together behind the step; as little as is trained.
  hand_case.plan.shard_optimizer = true;
  EXPECT_THROW(validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs),
               InvalidInput);
  const Program sharded = build_any(hand_case, "1f1b");
  validate_program(sharded, hand_case.plan, hand_case.assignment, hand_case.costs);
  EXPECT_EQ(lane_text(sharded, 0, 0), "F0 >F0 clip step");
  EXPECT_EQ(lane_text(sharded, 0, 1), "<F0 F0 B0 reduce clip step gather");
  EXPECT_EQ(lane_text(sharded, 1, 1), "reduce clip step gather");
  hand_case.plan.replicas = 1;
  hand_case.assignment.replicas.pop_back();
  EXPECT_EQ(lane_text(build_any(hand_case, "1f1b"), 0, 1), "<F0 F0 B0 clip step");
}

TEST(BuildProgram, DescribesItsStages) {
  const Program program = build_any(make_plain_case({1, 2, 3}, 2), "gpipe");
  EXPECT_EQ(program.num_stages, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(program.module_names, (std::vector<std::string>{"vision", "audio", "llm"}));
  EXPECT_EQ(program.num_lanes(), 6);
}

}  // namespace
}  // namespace entrain
