// Random tiny programs: the replay against an obviously slow one, on programs of the schedules,
// with weight gradients split off, and with orders shuffled until some of them deadlock.
#include "entrain/core/simulator/simulator.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/schedule/schedule.h"

#include "tests/oracle/random_cases.h"
#include "tests/oracle/slow_simulator.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

constexpr std::uint64_t kSeed = 7101;
constexpr int kCases = 1500;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

bool is_step_wide(const Operation& operation) {
  return operation.unit.module < 0;
}

std::size_t below(Rng& rng, std::size_t bound) {
  return static_cast<std::size_t>(rng.below(bound));
}

// Splits some backwards; the weight half goes anywhere behind the input half and its sends.
void split_backwards(Rng& rng, Program& program) {
  for (ReplicaProgram& replica : program.replicas) {
    for (std::vector<Operation>& list : replica.lanes) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].kind != OperationKind::kBackward || rng.below(2) == 0) {
          continue;
        }
        list[i].kind = OperationKind::kBackwardInput;
        std::size_t first = i + 1;
        while (first < list.size() && list[first].kind == OperationKind::kSend) {
          ++first;
        }
        std::size_t last = first;
        while (last < list.size() && !is_step_wide(list[last])) {
          ++last;
        }
        std::size_t place = first + below(rng, last - first + 1);
        while (place < last && list[place].kind == OperationKind::kSend) {
          ++place;
        }
        const Operation weight{OperationKind::kBackwardWeight, list[i].unit, -1};
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(place), weight);
      }
    }
  }
}

// Swaps neighbouring operations; whether the result can still finish is for both to find out.
void shuffle_orders(Rng& rng, Program& program) {
  for (ReplicaProgram& replica : program.replicas) {
    for (std::vector<Operation>& list : replica.lanes) {
      for (std::size_t swaps = below(rng, 4); swaps > 0 && list.size() > 1; --swaps) {
        const std::size_t i = below(rng, list.size() - 1);
        if (!is_step_wide(list[i]) && !is_step_wide(list[i + 1])) {
          std::swap(list[i], list[i + 1]);
        }
      }
    }
  }
}

struct Instance {
  oracle::RandomCase random_case;
  Program program;
  std::string text;
};

Instance make_instance(int index, bool shuffled) {
  Rng rng(kSeed, static_cast<std::uint64_t>(index));
  Instance instance;
  instance.random_case = oracle::make_random_case(rng);
  const std::vector<std::string> schedules = schedule_names();
  const std::string& schedule = schedules[below(rng, schedules.size())];
  const oracle::RandomCase& drawn = instance.random_case;
  instance.program = build_program(drawn.plan, drawn.assignment, drawn.costs, schedule);
  if (rng.below(2) == 0) {
    split_backwards(rng, instance.program);
  }
  if (shuffled) {
    shuffle_orders(rng, instance.program);
  }
  instance.text = "seed " + std::to_string(kSeed) + " case " + std::to_string(index) +
                  " schedule " + schedule + "\n" + describe(drawn) +
                  to_json(instance.program).dump(1);
  return instance;
}

EventCategory category_of(const Operation& operation) {
  return operation.kind == OperationKind::kSend ? EventCategory::kSend : EventCategory::kCompute;
}

// Every operation's start and finish, lanes' usage and memory.
void expect_equal(const Instance& instance,
                  const oracle::SlowTimeline& expected,
                  const Timeline& actual) {
  const Program& program = instance.program;
  EXPECT_EQ(actual.makespan, expected.makespan);
  std::vector<std::vector<std::vector<int>>> seen;
  for (const auto& replica : expected.operations) {
    auto& lanes = seen.emplace_back();
    for (const auto& lane : replica) {
      lanes.emplace_back(lane.size(), 0);
    }
  }
  for (const TimelineEvent& event : actual.events) {
    const Operation& operation =
        program.replicas[at(event.replica)].lanes[at(event.lane)][at(event.operation)];
    if (event.category == EventCategory::kWait || event.category == EventCategory::kReceive) {
      continue;
    }
    EXPECT_EQ(event.category, category_of(operation));
    const auto& slow = expected.operations[at(event.replica)][at(event.lane)][at(event.operation)];
    EXPECT_EQ(event.start, slow->start) << to_string(program, operation);
    EXPECT_EQ(event.finish, slow->finish) << to_string(program, operation);
    ++seen[at(event.replica)][at(event.lane)][at(event.operation)];
  }
  for (int replica = 0; replica < static_cast<int>(program.replicas.size()); ++replica) {
    for (int lane = 0; lane < program.num_lanes(); ++lane) {
      const std::vector<Operation>& list = program.replicas[at(replica)].lanes[at(lane)];
      nanoseconds busy{0};
      nanoseconds finish{0};
      for (std::size_t i = 0; i < list.size(); ++i) {
        const bool shown =
            list[i].kind != OperationKind::kReceive && list[i].kind != OperationKind::kClipNorm;
        EXPECT_EQ(seen[at(replica)][at(lane)][i], shown ? 1 : 0);
        if (!is_step_wide(list[i]) && list[i].channel < 0) {
          const auto& slow = expected.operations[at(replica)][at(lane)][i];
          busy += slow->finish - slow->start;
          finish = slow->finish;
        }
      }
      const LaneUsage& usage = actual.lanes[at(replica)][at(lane)];
      EXPECT_EQ(usage.busy, busy);
      EXPECT_EQ(usage.finish, finish);
      const auto bytes = oracle::slow_memory(program, instance.random_case.costs, replica, lane);
      EXPECT_EQ(memory_over_time(program, instance.random_case.costs, replica, lane), bytes);
      EXPECT_EQ(usage.peak_bytes, *std::max_element(bytes.begin(), bytes.end()));
    }
  }
}

TEST(Simulator, EqualsTheSlowOneOnEveryOperation) {
  int multi_part_groups = 0;
  int split = 0;
  for (int index = 0; index < kCases; ++index) {
    const Instance instance = make_instance(index, false);
    const StepCosts& costs = instance.random_case.costs;
    const oracle::SlowTimeline expected = oracle::slow_simulate(instance.program, costs);
    ASSERT_TRUE(expected.finished) << instance.text;
    const Timeline actual = simulate(instance.program, costs, {.events = true});
    expect_equal(instance, expected, actual);
    EXPECT_EQ(simulate(instance.program, costs).makespan, actual.makespan);
    EXPECT_LE(lane_bound(instance.program, costs), actual.makespan);
    for (const ReplicaProgram& replica : instance.program.replicas) {
      for (const auto& list : replica.lanes) {
        split += std::any_of(list.begin(), list.end(), [](const Operation& operation) {
          return operation.kind == OperationKind::kBackwardWeight;
        });
      }
      for (std::size_t module = 0; module + 1 < replica.groups.size(); ++module) {
        for (const auto& slot : replica.groups[module]) {
          for (const Group& group : slot) {
            multi_part_groups += group.llm_slots.size() > 1 ? 1 : 0;
          }
        }
      }
    }
    if (testing::Test::HasFailure()) {
      FAIL() << instance.text;
    }
  }
  // The draw reaches what is hard.
  EXPECT_GT(multi_part_groups, kCases / 10);
  EXPECT_GT(split, kCases / 10);
}

TEST(Simulator, RefusesExactlyWhatCannotFinish) {
  int stuck = 0;
  for (int index = 0; index < kCases; ++index) {
    const Instance instance = make_instance(index, true);
    const StepCosts& costs = instance.random_case.costs;
    const oracle::SlowTimeline expected = oracle::slow_simulate(instance.program, costs);
    try {
      const Timeline actual = simulate(instance.program, costs);
      EXPECT_TRUE(expected.finished) << instance.text;
      EXPECT_EQ(actual.makespan, expected.makespan) << instance.text;
      EXPECT_LE(lane_bound(instance.program, costs), actual.makespan) << instance.text;
    } catch (const InvalidInput& error) {
      EXPECT_FALSE(expected.finished) << error.what() << "\n" << instance.text;
      ++stuck;
    }
    if (testing::Test::HasFailure()) {
      return;
    }
  }
  EXPECT_GT(stuck, kCases / 20);
  EXPECT_LT(stuck, kCases - kCases / 20);
}

}  // namespace
}  // namespace entrain
