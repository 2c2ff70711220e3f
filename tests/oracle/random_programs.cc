#include "tests/oracle/random_programs.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/at.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/schedules.h"
#include "tests/oracle/slow_memory.h"

namespace entrain::oracle {
namespace {

using std::chrono::nanoseconds;

bool is_step_wide(const Operation& operation) {
  return operation.unit.module < 0;
}

std::size_t index_below(Rng& rng, std::size_t bound) {
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
        std::size_t place = first + index_below(rng, last - first + 1);
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
      for (std::size_t swaps = index_below(rng, 4); swaps > 0 && list.size() > 1; --swaps) {
        const std::size_t i = index_below(rng, list.size() - 1);
        if (!is_step_wide(list[i]) && !is_step_wide(list[i + 1])) {
          std::swap(list[i], list[i + 1]);
        }
      }
    }
  }
}

LinkSpec random_link(Rng& rng) {
  LinkSpec link;
  link.latency = nanoseconds{rng.below(2) == 0 ? 0 : static_cast<int>(rng.below(30))};
  link.bytes_per_second = rng.below(3) == 0 ? 0 : 0.5e9 * static_cast<double>(1 + rng.below(6));
  return link;
}

using Seen = std::vector<std::vector<std::vector<int>>>;  // [replica][lane][position]

// Compares events with the slow times; how many of each operation's there are.
Seen compare_events(const Program& program, const SlowTimeline& expected, const Timeline& actual) {
  Seen seen;
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
    int& count = seen[at(event.replica)][at(event.lane)][at(event.operation)];
    const auto& slow = expected.operations[at(event.replica)][at(event.lane)][at(event.operation)];
    SlowOperation times = *slow;
    bool sends = operation.kind == OperationKind::kSend;
    if (operation.kind == OperationKind::kReduceGradients &&
        event.category == EventCategory::kSend) {
      times = expected.buckets[at(event.lane)].at(at(count));
      sends = true;
    }
    EXPECT_EQ(event.category, sends ? EventCategory::kSend : EventCategory::kCompute);
    EXPECT_EQ(event.start, times.start) << to_string(program, operation);
    EXPECT_EQ(event.finish, times.finish) << to_string(program, operation);
    ++count;
  }
  return seen;
}

int num_events(const Operation& operation,
               int reduce_buckets,
               const std::vector<SlowOperation>& buckets) {
  if (operation.kind == OperationKind::kReceive || operation.kind == OperationKind::kClipNorm) {
    return 0;
  }
  const bool overlapped = operation.kind == OperationKind::kReduceGradients && reduce_buckets > 0;
  return overlapped ? static_cast<int>(buckets.size()) : 1;
}

// The operations of every lane as text.
std::string lanes_of(const Program& program) {
  std::string text;
  for (const ReplicaProgram& replica : program.replicas) {
    for (const std::vector<Operation>& lane : replica.lanes) {
      for (const Operation& operation : lane) {
        text += to_string(program, operation) + "; ";
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace

RandomProgram make_random_program(std::uint64_t seed,
                                  int index,
                                  const RandomProgramOptions& options) {
  Rng rng(seed, static_cast<std::uint64_t>(index));
  RandomProgram instance;
  instance.random_case = make_random_case(rng, options.cases);
  const RandomCase& drawn = instance.random_case;
  const std::vector<std::string> schedules = schedules_for(drawn.plan);
  const std::string& schedule = schedules[index_below(rng, schedules.size())];
  instance.program = build_program(drawn.plan, drawn.assignment, drawn.costs, schedule);
  if (rng.below(2) == 0) {
    split_backwards(rng, instance.program);
  }
  if (options.shuffled) {
    shuffle_orders(rng, instance.program);
  }
  instance.text = "seed " + std::to_string(seed) + " case " + std::to_string(index) + " schedule " +
                  schedule + "\n" + describe(drawn) + lanes_of(instance.program);
  return instance;
}

Network random_network(Rng& rng, const Program& program) {
  Network network;
  if (rng.below(4) == 0) {
    return network;
  }
  network.intra_node = random_link(rng);
  network.inter_node = random_link(rng);
  const std::uint64_t num_nodes = 1 + rng.below(3);
  for (std::size_t replica = 0; replica < program.replicas.size(); ++replica) {
    std::vector<int>& nodes = network.nodes.emplace_back();
    for (int lane = 0; lane < program.num_lanes(); ++lane) {
      nodes.push_back(static_cast<int>(rng.below(num_nodes)));
    }
  }
  return network;
}

void expect_equal(const RandomProgram& instance,
                  const SimulateOptions& options,
                  const SlowTimeline& expected,
                  const Timeline& actual) {
  const Program& program = instance.program;
  EXPECT_EQ(actual.makespan, expected.makespan);
  const Seen seen = compare_events(program, expected, actual);
  const int reduce_buckets =
      options.reduce_buckets.value_or(instance.random_case.costs.reduce_buckets);
  for (int replica = 0; replica < static_cast<int>(program.replicas.size()); ++replica) {
    for (int lane = 0; lane < program.num_lanes(); ++lane) {
      const std::vector<Operation>& list = program.replicas[at(replica)].lanes[at(lane)];
      nanoseconds busy{0};
      nanoseconds finish{0};
      for (std::size_t i = 0; i < list.size(); ++i) {
        EXPECT_EQ(seen[at(replica)][at(lane)][i],
                  num_events(list[i], reduce_buckets, expected.buckets[at(lane)]));
        if (!is_step_wide(list[i]) && list[i].channel < 0) {
          const auto& slow = expected.operations[at(replica)][at(lane)][i];
          busy += slow->finish - slow->start;
          finish = slow->finish;
        }
      }
      EXPECT_EQ(actual.lanes[at(replica)][at(lane)].busy, busy);
      EXPECT_EQ(actual.lanes[at(replica)][at(lane)].finish, finish);
    }
  }
}

void expect_slow_memory(const RandomProgram& instance, const Timeline& actual) {
  const Program& program = instance.program;
  const StepCosts& costs = instance.random_case.costs;
  const auto steps = memory_timeline(program, costs, actual);
  std::vector<std::vector<std::vector<std::int64_t>>> bytes(program.replicas.size());
  for (int replica = 0; replica < static_cast<int>(program.replicas.size()); ++replica) {
    for (int lane = 0; lane < program.num_lanes(); ++lane) {
      const std::vector<std::int64_t>& slow =
          bytes[at(replica)].emplace_back(slow_memory(program, costs, replica, lane));
      EXPECT_EQ(memory_over_time(program, costs, replica, lane), slow);
      const std::int64_t peak = *std::max_element(slow.begin(), slow.end());
      EXPECT_EQ(actual.lanes[at(replica)][at(lane)].peak_bytes, peak);
      std::int64_t largest = 0;
      nanoseconds before{0};
      for (const MemoryStep& step : steps[at(replica)][at(lane)]) {
        EXPECT_LE(before, step.time);
        before = step.time;
        largest = std::max(largest, step.bytes);
      }
      EXPECT_EQ(largest, peak);
    }
  }
  for (const TimelineEvent& event : actual.events) {
    const Operation& operation =
        program.replicas[at(event.replica)].lanes[at(event.lane)][at(event.operation)];
    if (event.category != EventCategory::kCompute || is_step_wide(operation) ||
        event.start == event.finish) {
      continue;
    }
    // While it runs, the last step is its own or one before it.
    std::int64_t held = 0;
    for (const MemoryStep& step : steps[at(event.replica)][at(event.lane)]) {
      held = step.time <= event.start ? step.bytes : held;
    }
    EXPECT_EQ(held, bytes[at(event.replica)][at(event.lane)][at(event.operation)]);
  }
}

}  // namespace entrain::oracle
