#include "entrain/core/study/cases.h"

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/study_files.h"

namespace entrain {
namespace {

struct Instance {
  Instance() {
    LaneSplitRequest split;
    split.lanes = 2;
    split.replicas = 2;
    split.num_slots = 2;
    split.policy = "lpt-2d";
    request.study = &study;
    request.plan = search_split(study, split, 1).best();
    request.plan.limits.evaluations = 60;
    request.policies = {"sequential", "lpt-2d", "entrain"};
    request.schedules = {"gpipe", "1f1b"};
    request.steps = 2;
  }

  oracle::StudyFiles files;
  Study study = load_study(files.table_inputs());
  CasesRequest request;
};

TEST(RunCases, AgreesWithAssigningAndSimulatingByHand) {
  const Instance instance;
  const std::vector<CaseResult> cases = run_cases(instance.request);
  ASSERT_EQ(cases.size(), 6U);
  EXPECT_EQ(cases[4].policy, "lpt-2d");
  EXPECT_EQ(cases[4].schedule, "1f1b");
  Plan plan = instance.request.plan;
  plan.schedule = "1f1b";
  const StepCosts costs = batch_costs(instance.study, plan, draw_batch(instance.study, 1));
  AssignRequest request;
  request.plan = &plan;
  request.costs = &costs;
  request.step = 1;
  request.seed = instance.study.inputs.seed;
  const StepAssignment assignment = assign("lpt-2d", request);
  const Timeline timeline = simulate(build_program(plan, assignment, costs, "1f1b"), costs);
  const CaseStep& step = cases[4].steps[1];
  EXPECT_EQ(step.step_ns, timeline.makespan.count());
  EXPECT_DOUBLE_EQ(step.bubble, bubble_fraction(timeline));
  EXPECT_DOUBLE_EQ(step.balance[0].cv, assignment.stats.modules.at("vision").cv);
  EXPECT_GE(step.gap(), 0.0);
  EXPECT_EQ(step.num_slots, (std::vector<int>{2, 2}));
}

TEST(RunCases, DoesNotDependOnThreads) {
  Instance instance;
  int calls = 0;
  instance.request.on_case = [&calls] { ++calls; };
  const std::vector<CaseResult> one = run_cases(instance.request);
  EXPECT_EQ(calls, 12);
  instance.request.threads = 4;
  const std::vector<CaseResult> four = run_cases(instance.request);
  for (std::size_t i = 0; i < one.size(); ++i) {
    for (std::size_t step = 0; step < one[i].steps.size(); ++step) {
      EXPECT_EQ(one[i].policy, four[i].policy);
      EXPECT_EQ(one[i].steps[step].step_ns, four[i].steps[step].step_ns);
      EXPECT_EQ(one[i].steps[step].num_slots, four[i].steps[step].num_slots);
      EXPECT_EQ(one[i].steps[step].peak_bytes, four[i].steps[step].peak_bytes);
    }
  }
}

TEST(RunCases, MeasuresBalanceAtThePlansSlots) {
  Instance instance;
  instance.request.policies = {"entrain"};
  instance.request.schedules = {"1f1b"};
  const CaseStep step = run_cases(instance.request)[0].steps[0];
  EXPECT_TRUE(step.equal_slots);
  EXPECT_NE(step.num_slots, (std::vector<int>{2, 2})) << "it chose others for its step time";
  EXPECT_GE(step.balance[1].cv, step.balance[1].floor_cv * 0.999);
}

TEST(RunCases, MarksWhatIsOverItsLimitAndKeepsARefusal) {
  Instance instance;
  instance.request.memory = {MemoryKind::kBytes, 1};
  instance.request.schedules = {"1f1b"};
  const std::vector<CaseResult> cases = run_cases(instance.request);
  EXPECT_GT(cases[0].steps[0].over_bytes, 0);
  EXPECT_NE(cases[0].steps[0].over.find("lane"), std::string::npos);
  EXPECT_EQ(cases[0].steps[0].over_bytes, cases[0].steps[0].peak_bytes - 1);
  EXPECT_NE(cases[2].steps[0].refused.find("lane"), std::string::npos);
}

TEST(RunCases, GivesLptTheMemoryItNeedsUnderTheEqualRule) {
  Instance instance;
  instance.request.memory = {MemoryKind::kEqual, 0};
  instance.request.policies = {"lpt-2d"};
  instance.request.schedules = {"1f1b"};
  const std::vector<CaseResult> cases = run_cases(instance.request);
  for (const CaseStep& step : cases[0].steps) {
    EXPECT_EQ(step.over_bytes, 0);
  }
}

}  // namespace
}  // namespace entrain
