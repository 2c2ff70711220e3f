// The corners of the space of batches and plans: every policy under every schedule gives a valid
// assignment whose program is proven and never beats the bound.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/schedules.h"

namespace entrain {
namespace {

using oracle::HandCase;
using oracle::HandSample;
using oracle::make_hand_case;
using std::chrono::nanoseconds;

// Samples with one segment in each of `encoders` encoders; negative: text-only.
HandCase batch(const std::vector<int>& num_stages, int samples, int text_only = 0) {
  const std::size_t encoders = num_stages.size() - 1;
  std::vector<HandSample> list;
  for (int i = 0; i < samples; ++i) {
    HandSample sample;
    sample.encoder_slots.resize(encoders);
    for (std::vector<int>& segments : sample.encoder_slots) {
      segments.assign(i < text_only ? 0 : 1, 0);
    }
    list.push_back(sample);
  }
  HandCase result = make_hand_case(num_stages, 1, list);
  result.plan.limits.evaluations = 40;
  return result;
}

template <class Change>
void for_each_unit(HandCase& of, const Change& change) {
  for (ModuleCosts& module : of.costs.modules) {
    for (StageCosts& stage : module.stages) {
      for (std::size_t unit = 0; unit < stage.units.size(); ++unit) {
        change(module, stage.units[unit], unit);
      }
    }
  }
}

// Every policy under every schedule, or only `schedules`.
void expect_all_valid(HandCase& of, std::vector<std::string> schedules = {}) {
  for (const std::string& schedule :
       schedules.empty() ? oracle::schedules_for(of.plan) : schedules) {
    of.plan.schedule = schedule;
    for (const std::string& policy : policy_names()) {
      const AssignRequest request{.plan = &of.plan, .costs = &of.costs};
      const StepAssignment first = assign(policy, request);
      const std::string what = policy + " " + schedule;
      ASSERT_NO_THROW(validate_assignment(first, of.plan, of.costs)) << what;
      const Program program = build_program(of.plan, first, of.costs, schedule);
      ASSERT_NO_THROW(validate_program(program, of.plan, first, of.costs)) << what;
      ASSERT_GE(simulate(program, of.costs).makespan, step_lower_bound(of.plan, of.costs, schedule))
          << what;
      ASSERT_EQ(digest(assign(policy, request)), digest(first)) << what;
    }
  }
}

TEST(EdgeCases, OneSample) {
  HandCase of = batch({2, 2}, 1);
  of.plan.num_slots = 4;
  expect_all_valid(of);
}

TEST(EdgeCases, FewerSamplesThanSlotsOfAllReplicas) {
  HandCase of = batch({1, 2}, 5);
  of.plan.num_slots = 4;
  of.plan.replicas = 3;
  expect_all_valid(of);
}

TEST(EdgeCases, AllTextOnly) {
  HandCase of = batch({2, 2}, 8, 8);
  of.plan.num_slots = 3;
  of.plan.replicas = 2;
  expect_all_valid(of);
}

TEST(EdgeCases, OneOversizedSample) {
  HandCase of = batch({2, 2}, 12);
  of.plan.num_slots = 4;
  of.plan.replicas = 2;
  for_each_unit(of, [](const ModuleCosts&, UnitCost& cost, std::size_t unit) {
    if (unit == 5) {
      cost.time = {nanoseconds{5000}, nanoseconds{5000}, nanoseconds{5000}};
    }
  });
  expect_all_valid(of);
}

TEST(EdgeCases, AllEqual) {
  HandCase of = batch({2, 2}, 16);
  of.plan.num_slots = 4;
  of.plan.replicas = 2;
  expect_all_valid(of);
}

TEST(EdgeCases, ModulesAndBatchesThatCostNothing) {
  HandCase encoder = batch({2, 2}, 8);
  encoder.plan.num_slots = 4;
  for (StageCosts& stage : encoder.costs.modules[0].stages) {
    for (UnitCost& unit : stage.units) {
      unit = {};
    }
  }
  expect_all_valid(encoder);
  for_each_unit(encoder, [](const ModuleCosts&, UnitCost& cost, std::size_t) { cost = {}; });
  expect_all_valid(encoder);
}

TEST(EdgeCases, TwoAndThreeEncoders) {
  for (const std::vector<int>& stages : {std::vector<int>{1, 2, 2}, std::vector<int>{1, 1, 1, 2}}) {
    HandCase of = batch(stages, 9, 2);
    of.plan.num_slots = 3;
    of.plan.replicas = 2;
    expect_all_valid(of);
  }
}

TEST(EdgeCases, OneSlotAndOneStage) {
  HandCase one_slot = batch({2, 2}, 6);
  one_slot.plan.num_slots = 1;
  expect_all_valid(one_slot);
  HandCase one_lane = batch({1, 1}, 6);
  one_lane.plan.lanes = {{{0, 0}, {1, 0}}};
  one_lane.plan.num_slots = 3;
  expect_all_valid(one_lane);
  HandCase llm_alone = batch({1}, 6);
  llm_alone.plan.num_slots = 3;
  expect_all_valid(llm_alone);
}

TEST(EdgeCases, FiveHundredAndTwelveStages) {
  HandCase of = batch({200, 312}, 8);
  of.plan.num_slots = 4;
  of.plan.limits.evaluations = 4;
  expect_all_valid(of, {"1f1b", "zb-h1", "entrain"});
}

TEST(EdgeCases, NothingFitsNamesLaneSlotAndBytes) {
  HandCase of = batch({2, 2}, 6);
  of.plan.num_slots = 3;
  of.plan.limits.bytes_per_lane = 1;
  try {
    assign("entrain", {.plan = &of.plan, .costs = &of.costs});
    FAIL();
  } catch (const NothingFits& no) {
    const std::string message = no.what();
    EXPECT_NE(message.find("lane"), std::string::npos) << message;
    EXPECT_NE(message.find("slot"), std::string::npos) << message;
    EXPECT_NE(message.find("bytes"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace entrain
