// Random cases on the plans that `interleaved` and `dip` are made for, and the slots that `zb-h1`
// holds: what is built validates and simulates to its end.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/lane_layouts.h"
#include "tests/oracle/random_cases.h"
#include "tests/oracle/turn_orders.h"

namespace entrain {
namespace {

using oracle::colocate_lanes;
using oracle::describe;
using oracle::FrozenPattern;
using oracle::LaneLayout;
using oracle::make_random_case;
using oracle::RandomCase;
using oracle::RandomCaseOptions;
using oracle::wrap_lanes;

constexpr std::uint64_t kSeed = 20260102;
constexpr std::uint64_t kCases = 1500;

std::string label(std::uint64_t index, std::string_view schedule, const RandomCase& instance) {
  return "seed " + std::to_string(kSeed) + " case " + std::to_string(index) + " " +
         std::string(schedule) + "\n" + describe(instance);
}

void expect_sound(std::string_view schedule, const RandomCase& instance, std::uint64_t index) {
  const Program program =
      build_program(instance.plan, instance.assignment, instance.costs, schedule);
  ASSERT_NO_THROW(validate_program(program, instance.plan, instance.assignment, instance.costs))
      << label(index, schedule, instance);
  ASSERT_NO_THROW(simulate(program, instance.costs)) << label(index, schedule, instance);
}

TEST(WrappedLanes, RunEverySchedule) {
  std::uint64_t differ = 0;
  for (std::uint64_t i = 0; i < kCases; ++i) {
    Rng rng(kSeed, i);
    RandomCaseOptions options;
    options.llm_stages = 2 + static_cast<int>(rng.below(2));
    options.max_slots = 9;
    options.chunks = i % 2 == 1;
    options.layout = LaneLayout::kLanePerStage;
    RandomCase instance = make_random_case(rng, options);
    wrap_lanes(rng, instance.plan);
    for (const char* schedule : {"zb-h1", "zb-h2"}) {
      expect_sound(schedule, instance, i);
    }
    const auto lanes = [&](const char* schedule) {
      return build_program(instance.plan, instance.assignment, instance.costs, schedule)
          .replicas[0]
          .lanes;
    };
    if (schedule_objection("interleaved", instance.plan).empty()) {
      expect_sound("interleaved", instance, i);
      differ += lanes("interleaved") != lanes("1f1b") ? 1U : 0U;
    }
  }
  std::printf("%lu cases, %lu differ from 1f1b, seed %lu\n", kCases, differ, kSeed);
  EXPECT_GE(differ, kCases / 10);
}

TEST(ColocatedLanes, RunEverySchedule) {
  std::uint64_t faster = 0;
  std::uint64_t slower = 0;
  for (std::uint64_t i = 0; i < kCases; ++i) {
    Rng rng(kSeed + 1, i);
    RandomCaseOptions options;
    options.encoders = 1 + static_cast<int>(rng.below(2));
    options.llm_stages = 2 + static_cast<int>(rng.below(2));
    options.encoder_stages = options.llm_stages;
    options.chunks = i % 2 == 1;
    options.layout = LaneLayout::kLanePerStage;
    RandomCase instance = make_random_case(rng, options);
    colocate_lanes(instance.plan);
    for (const char* schedule : {"zb-h1", "zb-h2"}) {
      expect_sound(schedule, instance, i);
    }
    if (!schedule_objection("dip", instance.plan).empty()) {
      ASSERT_EQ(instance.plan.modules.size(), 1U);
      continue;
    }
    expect_sound("dip", instance, i);
    const auto time = [&](const char* schedule) {
      return simulate(build_program(instance.plan, instance.assignment, instance.costs, schedule),
                      instance.costs)
          .makespan;
    };
    faster += time("dip") < time("1f1b") ? 1U : 0U;
    slower += time("dip") > time("1f1b") ? 1U : 0U;
  }
  std::printf("%lu cases: dip faster than 1f1b in %lu, slower in %lu, seed %lu\n",
              kCases,
              faster,
              slower,
              kSeed + 1);
  EXPECT_GT(faster, slower);
}

// Activation bytes of one stage while its list runs, at most.
std::int64_t peak_of(const std::vector<Operation>& list,
                     const StepCosts& costs,
                     const ReplicaProgram& replica) {
  std::int64_t held = 0;
  std::int64_t peak = 0;
  for (const Operation& operation : list) {
    const Group& group = group_of(replica, operation.unit);
    const std::int64_t bytes = activation_bytes(costs, operation.unit, group);
    if (operation.kind == OperationKind::kForward) {
      held += group.takes_backward[at(operation.unit.stage)] != 0 ? bytes : 0;
      peak = std::max(peak, held);
    } else if (operation.kind != OperationKind::kBackwardInput) {
      held -= bytes;
    }
  }
  return peak;
}

// Every stage holds no more than it would at the far end of the longest way through it under 1f1b.
TEST(ZeroBubbleH1, HoldsTheSlotsOfTheLongestWay) {
  std::uint64_t stages_checked = 0;
  for (std::uint64_t i = 0; i < kCases; ++i) {
    Rng rng(kSeed + 2, i);
    RandomCaseOptions options;
    options.frozen = FrozenPattern::kNone;
    options.replicas = 1;
    options.layout = LaneLayout::kLanePerStage;
    options.max_slots = 9;
    const RandomCase instance = make_random_case(rng, options);
    const auto [program, graphs] =
        build_step(instance.plan, instance.assignment, instance.costs, "zb-h1");
    const ReplicaProgram& replica = program.replicas[0];
    const StageGraph& stages = graphs.stages;
    const ReplicaGraph& graph = graphs.replicas[0];
    const int llm = stages.llm;
    std::vector<int> longest;  // [module] in stages
    for (int module = 0; module < llm; ++module) {
      const bool any = graph.first_group[at(module)] != graph.end_of(module);
      longest.push_back(any ? stages.num_stages(module) + stages.num_stages(llm) : 0);
    }
    longest.push_back(stages.num_stages(llm));
    longest[at(llm)] = *std::max_element(longest.begin(), longest.end());
    std::vector<int> warm_up;
    for (int module = 0; module <= llm; ++module) {
      warm_up.insert(
          warm_up.end(), at(stages.num_stages(module)), std::max(0, longest[at(module)] - 1));
    }
    const OrderInputs inputs{instance.plan, instance.costs, stages, graph};
    const auto whole = oracle::stage_orders(inputs, {warm_up, {}});
    for (int lane = 0; lane < program.num_lanes(); ++lane) {
      const StageRef ref = program.lanes[at(lane)][0];
      std::vector<Operation> list;
      std::copy_if(replica.lanes[at(lane)].begin(),
                   replica.lanes[at(lane)].end(),
                   std::back_inserter(list),
                   [](const Operation& operation) {
                     return operation.unit.module >= 0 && operation.channel < 0;
                   });
      ASSERT_LE(peak_of(list, instance.costs, replica),
                peak_of(whole[at(stages.number(ref.module, ref.stage))], instance.costs, replica))
          << label(i, "zb-h1", instance) << "lane " << lane;
      ++stages_checked;
    }
  }
  std::printf("%lu stages, seed %lu\n", stages_checked, kSeed + 2);
}

}  // namespace
}  // namespace entrain
