// Random cases whose samples are cut into chunks, under every schedule: assignments are valid, what
// is built validates and costs what the whole samples cost, the replay equals the slow one, and
// chunks out of order are refused.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/balance.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/random_cases.h"
#include "tests/oracle/schedules.h"
#include "tests/oracle/slow_memory.h"
#include "tests/oracle/slow_simulator.h"

namespace entrain {
namespace {

using oracle::describe;
using oracle::RandomCase;

constexpr std::uint64_t kSeed = 60321;
constexpr std::uint64_t kCases = 1200;

std::size_t below(Rng& rng, std::size_t bound) {
  return static_cast<std::size_t>(rng.below(bound));
}

RandomCase make_case(std::uint64_t index) {
  Rng rng(kSeed, index);
  oracle::RandomCaseOptions options;
  options.min_slots = 2;
  options.chunks = true;
  return oracle::make_random_case(rng, options);
}

std::string label(std::uint64_t index, const std::string& schedule, const RandomCase& instance) {
  return "seed " + std::to_string(kSeed) + " case " + std::to_string(index) + " " + schedule +
         "\n" + describe(instance);
}

// Empty when the program is accepted, else the reason.
std::string refusal(const Program& program, const RandomCase& instance) {
  try {
    validate_program(program, instance.plan, instance.assignment, instance.costs);
    return "";
  } catch (const InvalidInput& error) {
    return error.what();
  }
}

int num_chunks(const StepAssignment& assignment) {
  int result = 0;
  for (const ReplicaAssignment& replica : assignment.replicas) {
    for (const Slot& slot : replica.modules.back()) {
      for (const WorkItem& item : slot) {
        result += item.is_chunk() ? 1 : 0;
      }
    }
  }
  return result;
}

TEST(Chunks, AreInValidAssignments) {
  int cut = 0;
  for (std::uint64_t i = 0; i < kCases; ++i) {
    const RandomCase instance = make_case(i);
    ASSERT_NO_THROW(validate_assignment(instance.assignment, instance.plan, instance.costs))
        << label(i, "", instance);
    cut += num_chunks(instance.assignment) > 0 ? 1 : 0;
  }
  EXPECT_GE(cut, 1000);
}

// The LLM's forward work of a replica without launches, over all stages.
std::int64_t work_of_samples(const RandomCase& instance, int replica) {
  const int llm = instance.costs.llm_module();
  std::int64_t total = 0;
  for (const Slot& slot : instance.assignment.replicas[at(replica)].modules[at(llm)]) {
    for (const WorkItem& item : slot) {
      for (const StageCosts& stage : instance.costs.modules[at(llm)].stages) {
        total += item.token_begin == 0 ? stage.units[at(item.sample)].time.forward.count() : 0;
      }
    }
  }
  return total;
}

std::int64_t work_of_program(const RandomCase& instance, const Program& program, int replica) {
  const int llm = instance.costs.llm_module();
  std::int64_t total = 0;
  for (const auto& lane : program.replicas[at(replica)].lanes) {
    for (const Operation& operation : lane) {
      if (operation.kind == OperationKind::kForward && operation.unit.module == llm) {
        const Group& group = group_of(program.replicas[at(replica)], operation.unit);
        total += (operation_time(instance.costs, operation.kind, operation.unit, group) -
                  instance.costs.modules[at(llm)].stages[at(operation.unit.stage)].launch.forward)
                     .count();
      }
    }
  }
  return total;
}

TEST(Chunks, MakeProgramsThatValidateAndCostWhatTheWholeSamplesCost) {
  for (std::uint64_t i = 0; i < kCases; ++i) {
    const RandomCase instance = make_case(i);
    for (const std::string& schedule : oracle::schedules_for(instance.plan)) {
      const Program program =
          build_program(instance.plan, instance.assignment, instance.costs, schedule);
      ASSERT_EQ(refusal(program, instance), "") << label(i, schedule, instance);
      for (int replica = 0; replica < instance.plan.replicas; ++replica) {
        ASSERT_EQ(work_of_program(instance, program, replica), work_of_samples(instance, replica))
            << label(i, schedule, instance);
      }
    }
  }
}

void expect_equal_to_slow(const RandomCase& instance, const Program& program) {
  const oracle::SlowTimeline expected = oracle::slow_simulate(program, instance.costs);
  ASSERT_TRUE(expected.finished);
  const Timeline actual = simulate(program, instance.costs, {.events = true});
  EXPECT_EQ(actual.makespan, expected.makespan);
  for (const TimelineEvent& event : actual.events) {
    if (event.category == EventCategory::kCompute) {
      const auto& slow =
          expected.operations[at(event.replica)][at(event.lane)][at(event.operation)];
      EXPECT_EQ(event.start, slow->start);
      EXPECT_EQ(event.finish, slow->finish);
    }
  }
  for (int replica = 0; replica < instance.plan.replicas; ++replica) {
    for (int lane = 0; lane < program.num_lanes(); ++lane) {
      const auto bytes = oracle::slow_memory(program, instance.costs, replica, lane);
      EXPECT_EQ(memory_over_time(program, instance.costs, replica, lane), bytes);
      EXPECT_EQ(actual.lanes[at(replica)][at(lane)].peak_bytes,
                *std::max_element(bytes.begin(), bytes.end()));
    }
  }
}

TEST(Chunks, SimulateAsTheSlowSimulatorDoes) {
  for (std::uint64_t i = 0; i < kCases; ++i) {
    const RandomCase instance = make_case(i);
    for (const std::string& schedule : oracle::schedules_for(instance.plan)) {
      const Program program =
          build_program(instance.plan, instance.assignment, instance.costs, schedule);
      expect_equal_to_slow(instance, program);
      if (testing::Test::HasFailure()) {
        FAIL() << label(i, schedule, instance);
      }
    }
  }
}

TEST(Chunks, AreBalancedAsUnitsOfTheirOwn) {
  for (std::uint64_t i = 0; i < kCases; ++i) {
    const RandomCase instance = make_case(i);
    const int llm = instance.costs.llm_module();
    const ModuleBalance balance = module_balance(instance.assignment, instance.costs, llm);
    ASSERT_LE(balance.floor_cv, balance.cv + 1e-9) << label(i, "", instance);
    for (int replica = 0; replica < instance.plan.replicas; ++replica) {
      const ReplicaBalance& slots = balance.replicas[at(replica)];
      ASSERT_LE(slots.floor_cv, slots.cv + 1e-9) << label(i, "", instance);
      ASSERT_NEAR(slots.mean_s * slots.num_slots,
                  static_cast<double>(work_of_samples(instance, replica)) * 1e-9,
                  1e-12)
          << label(i, "", instance);
    }
  }
}

bool is_gradient(const Operation& operation) {
  return operation.kind == OperationKind::kBackward ||
         operation.kind == OperationKind::kBackwardInput;
}

// Positions on one lane of an operation and of one that must not come after it.
struct LinkedPair {
  std::size_t first = 0;
  std::size_t second = 0;
};

// Forwards (or backwards) of neighbouring chunks on a lane.
std::vector<LinkedPair> linked_pairs(const Program& program,
                                     int replica,
                                     const std::vector<Operation>& lane,
                                     bool gradients) {
  std::vector<LinkedPair> result;
  for (std::size_t second = 0; second < lane.size(); ++second) {
    const bool fits =
        gradients ? is_gradient(lane[second]) : lane[second].kind == OperationKind::kForward;
    if (!fits) {
      continue;
    }
    const UnitKey& unit = lane[second].unit;
    const Group& group = group_of(program.replicas[at(replica)], unit);
    for (const LlmGroupRef& ref : gradients ? group.later : group.earlier) {
      for (std::size_t first = 0; first < second; ++first) {
        if (lane[first].kind == lane[second].kind &&
            lane[first].unit == UnitKey{unit.module, unit.stage, ref.slot, ref.group}) {
          result.push_back({first, second});
        }
      }
    }
  }
  return result;
}

TEST(Chunks, AreRefusedOutOfOrder) {
  int forwards = 0;
  int backwards = 0;
  for (std::uint64_t i = 0; forwards + backwards < 2000 && i < 20 * kCases; ++i) {
    Rng rng(kSeed + 1, i);
    const RandomCase instance = make_case(i);
    const std::vector<std::string> names = oracle::schedules_for(instance.plan);
    const std::string& schedule = names[below(rng, names.size())];
    Program program = build_program(instance.plan, instance.assignment, instance.costs, schedule);
    const int replica = static_cast<int>(below(rng, program.replicas.size()));
    auto& lanes = program.replicas[at(replica)].lanes;
    std::vector<Operation>& lane = lanes[below(rng, lanes.size())];
    const bool gradients = rng.below(2) == 0;
    const std::vector<LinkedPair> pairs = linked_pairs(program, replica, lane, gradients);
    if (pairs.empty()) {
      continue;
    }
    const LinkedPair pair = pairs[below(rng, pairs.size())];
    std::swap(lane[pair.first], lane[pair.second]);
    ++(gradients ? backwards : forwards);
    ASSERT_NE(refusal(program, instance), "") << label(i, schedule, instance);
    ASSERT_FALSE(oracle::slow_simulate(program, instance.costs).finished)
        << label(i, schedule, instance);
    ASSERT_THROW(simulate(program, instance.costs), InvalidInput) << label(i, schedule, instance);
  }
  std::printf("%d forwards and %d backwards out of order\n", forwards, backwards);
  EXPECT_GE(forwards, 700);
  EXPECT_GE(backwards, 700);
}

TEST(Chunks, RunAfterAnySwapExactlyWhenTheSlowSimulatorFinishes) {
  int stuck = 0;
  for (std::uint64_t i = 0; i < kCases; ++i) {
    Rng rng(kSeed + 2, i);
    const RandomCase instance = make_case(i);
    Program program = build_program(
        instance.plan, instance.assignment, instance.costs, i % 2 == 0 ? "1f1b" : "gpipe");
    for (ReplicaProgram& replica : program.replicas) {
      for (std::vector<Operation>& lane : replica.lanes) {
        for (std::size_t swaps = below(rng, 4); swaps > 0 && lane.size() > 1; --swaps) {
          const std::size_t position = below(rng, lane.size() - 1);
          if (lane[position].unit.module >= 0 && lane[position + 1].unit.module >= 0) {
            std::swap(lane[position], lane[position + 1]);
          }
        }
      }
    }
    const oracle::SlowTimeline expected = oracle::slow_simulate(program, instance.costs);
    try {
      const Timeline actual = simulate(program, instance.costs);
      ASSERT_TRUE(expected.finished) << label(i, "", instance);
      ASSERT_EQ(actual.makespan, expected.makespan) << label(i, "", instance);
    } catch (const InvalidInput& error) {
      ASSERT_FALSE(expected.finished) << error.what() << "\n" << label(i, "", instance);
      ++stuck;
    }
  }
  EXPECT_GT(stuck, 50);
}

}  // namespace
}  // namespace entrain
