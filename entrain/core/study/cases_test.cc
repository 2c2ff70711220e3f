#include "entrain/core/study/cases.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/balance.h"
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
  EXPECT_DOUBLE_EQ(step.balance[0].cv, module_balance(assignment, costs, 0).cv);
  EXPECT_GE(step.gap(), 0.0);
  EXPECT_EQ(step.num_slots, (std::vector<int>{2, 2}));
}

TEST(RunCases, DoesNotDependOnThreads) {
  Instance instance;
  std::vector<double> shares;
  instance.request.progress = [&shares](double share) { shares.push_back(share); };
  instance.request.slots = {2, 4};
  const std::vector<CaseResult> one = run_cases(instance.request);
  ASSERT_EQ(shares.size(), 28U) << "12 runs, and two trials of the 8 of other policies";
  EXPECT_DOUBLE_EQ(shares.back(), 1.0);
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  instance.request.threads = 4;
  const std::vector<CaseResult> four = run_cases(instance.request);
  for (std::size_t i = 0; i < one.size(); ++i) {
    for (std::size_t step = 0; step < one[i].steps.size(); ++step) {
      EXPECT_EQ(one[i].policy, four[i].policy);
      EXPECT_EQ(one[i].given_slots, four[i].given_slots);
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

TEST(RunCases, GivesEveryPolicyItsBestNumberOfSlots) {
  Instance instance;
  instance.request.schedules = {"1f1b"};
  std::vector<std::vector<CaseResult>> fixed;
  for (const int slots : {1, 2, 4}) {
    instance.request.plan.num_slots = slots;
    fixed.push_back(run_cases(instance.request));
    EXPECT_EQ(fixed.back()[0].given_slots, slots);
    EXPECT_EQ(fixed.back()[2].given_slots, 0) << "entrain chooses its own";
  }
  instance.request.plan.num_slots = 2;
  instance.request.slots = {1, 2, 4};
  const std::vector<CaseResult> best = run_cases(instance.request);
  const auto time_of = [](const CaseResult& result) {
    return result.steps[0].step_ns + result.steps[1].step_ns;
  };
  for (std::size_t policy = 0; policy < 2; ++policy) {
    std::vector<std::int64_t> times;
    for (const std::vector<CaseResult>& cases : fixed) {
      times.push_back(time_of(cases[policy]));
    }
    EXPECT_EQ(time_of(best[policy]), *std::min_element(times.begin(), times.end()));
    EXPECT_NE(best[policy].given_slots, 1);
    EXPECT_EQ(best[policy].steps[0].num_slots, std::vector<int>(2, best[policy].given_slots));
    EXPECT_TRUE(best[policy].steps[0].equal_slots) << "balance is at the plan's";
    EXPECT_DOUBLE_EQ(best[policy].steps[0].balance[1].cv, fixed[1][policy].steps[0].balance[1].cv);
  }
  EXPECT_EQ(time_of(best[2]), time_of(fixed[1][2])) << "of entrain nothing changes";
}

TEST(ChoosesSlots, SaysWhatPoliciesDo) {
  const Instance instance;
  const StudyBatch batch = draw_batch(instance.study, 0);
  for (const std::string& policy : policy_names()) {
    if (policy == "entrain-paper") {
      continue;  // takes fewer than it is given where one sample outweighs the others, as here
    }
    std::vector<std::vector<int>> slots;
    for (const int given : {1, 3}) {
      Plan plan = instance.request.plan;
      plan.num_slots = given;
      const StepCosts costs = batch_costs(instance.study, plan, batch);
      AssignRequest request;
      request.plan = &plan;
      request.costs = &costs;
      slots.emplace_back();
      for (const ReplicaAssignment& replica : assign(policy, request).replicas) {
        slots.back().push_back(replica.num_slots);
      }
    }
    const bool own = chooses_slots(policy, {});
    EXPECT_EQ(slots[0] == slots[1], own) << policy;
  }
  AssignRequest balance;
  balance.objective = Objective::kBalance;
  EXPECT_FALSE(chooses_slots("entrain", balance));
  AssignRequest fixed;
  fixed.options.choose_slots = false;
  EXPECT_FALSE(chooses_slots("entrain", fixed));
}

TEST(SlotCandidates, AreClippedToTheSamplesOfAReplica) {
  Plan plan;
  plan.replicas = 2;
  plan.num_slots = 6;
  EXPECT_EQ(slot_candidates(plan, 100), (std::vector<int>{1, 2, 4, 6, 8, 12, 16, 24, 32}));
  EXPECT_EQ(slot_candidates(plan, 20), (std::vector<int>{1, 2, 4, 6, 8, 10}));
  EXPECT_EQ(slot_candidates(plan, 3), (std::vector<int>{1}));
}

TEST(BestSlots, PrefersWhatFitsToWhatIsFast) {
  EXPECT_EQ(best_slots({{4, false, 0, 90}, {8, false, 1, 50}, {16, true, 0, 0}}), 4);
  EXPECT_EQ(
      best_slots({{4, false, 0, 90}, {8, false, 0, 50}, {4, false, 0, 10}, {8, false, 0, 51}}), 4);
  EXPECT_EQ(best_slots({{8, false, 0, 50}, {4, false, 0, 50}}), 4) << "the least of equals";
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
