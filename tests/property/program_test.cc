// Random cases through every schedule: what is built validates and simulates to its end, and what
// is then broken at random is refused.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/random_cases.h"
#include "tests/oracle/schedules.h"

namespace entrain {
namespace {

using oracle::describe;
using oracle::make_random_case;
using oracle::RandomCase;

constexpr std::uint64_t kSeed = 20260101;
constexpr std::uint64_t kCases = 1500;

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

// Makes the input gradient: a whole backward or its input half.
bool makes_gradient(const Operation& operation) {
  return operation.kind == OperationKind::kBackward ||
         operation.kind == OperationKind::kBackwardInput;
}

bool is_compute(const Operation& operation) {
  return operation.kind == OperationKind::kForward || makes_gradient(operation) ||
         operation.kind == OperationKind::kBackwardWeight;
}

TEST(RandomPrograms, ValidateAndRunToTheirEnd) {
  std::uint64_t operations = 0;
  for (std::uint64_t i = 0; i < kCases; ++i) {
    Rng rng(kSeed, i);
    const RandomCase instance = make_random_case(rng);
    for (const std::string& schedule : oracle::schedules_for(instance.plan)) {
      const Program program =
          build_program(instance.plan, instance.assignment, instance.costs, schedule);
      ASSERT_EQ(refusal(program, instance), "") << label(i, schedule, instance);
      const Timeline timeline = simulate(program, instance.costs);
      for (int replica = 0; replica < instance.plan.replicas; ++replica) {
        for (int lane = 0; lane < program.num_lanes(); ++lane) {
          const auto r = static_cast<std::size_t>(replica);
          const auto l = static_cast<std::size_t>(lane);
          std::chrono::nanoseconds work{0};
          for (const Operation& operation : program.replicas[r].lanes[l]) {
            if (is_compute(operation)) {
              work += operation_time(instance.costs,
                                     operation.kind,
                                     operation.unit,
                                     group_of(program.replicas[r], operation.unit));
            }
            ++operations;
          }
          ASSERT_LE(work, timeline.makespan) << label(i, schedule, instance);
        }
      }
    }
  }
  std::printf("%lu cases, %lu operations, seed %lu\n", kCases, operations, kSeed);
}

TEST(RandomPrograms, AreEqualForEqualInputs) {
  for (std::uint64_t i = 0; i < 50; ++i) {
    Rng rng(kSeed, i);
    const RandomCase instance = make_random_case(rng);
    for (const std::string& schedule : oracle::schedules_for(instance.plan)) {
      const Program first =
          build_program(instance.plan, instance.assignment, instance.costs, schedule);
      const Program second =
          build_program(instance.plan, instance.assignment, instance.costs, schedule);
      ASSERT_TRUE(first == second) << label(i, schedule, instance);
    }
  }
}

std::size_t below(Rng& rng, std::size_t bound) {
  return static_cast<std::size_t>(rng.below(bound));
}

// Breaks a lane at random so that no reading of the rules allows it; returns what was done, or ""
// where the lane offers nothing to break that way.
std::string break_for_sure(Rng& rng, std::vector<Operation>& lane) {
  const std::size_t position = below(rng, lane.size());
  const auto at = lane.begin() + static_cast<std::ptrdiff_t>(position);
  switch (rng.below(4)) {
    case 0:
      lane.erase(at);
      return "dropped operation " + std::to_string(position);
    case 1:
      lane.insert(lane.begin() + static_cast<std::ptrdiff_t>(below(rng, lane.size() + 1)),
                  Operation(*at));
      return "doubled operation " + std::to_string(position);
    case 2: {
      // Any other unit of the kind exists already, or does not exist.
      if (at->unit.module < 0) {
        return "";
      }
      int* fields[] = {&at->unit.module, &at->unit.stage, &at->unit.slot, &at->unit.group};
      *fields[rng.below(4)] += rng.below(2) == 0 ? 1 : -1;
      return "renamed the unit of operation " + std::to_string(position);
    }
    default: {
      // The forward of a unit stands before its backward, the input half before the weight half,
      // and all on this lane.
      for (std::size_t i = 0; i < lane.size(); ++i) {
        for (std::size_t j = i + 1; j < lane.size(); ++j) {
          const bool follows =
              (lane[i].kind == OperationKind::kForward && makes_gradient(lane[j])) ||
              (makes_gradient(lane[i]) && lane[j].kind == OperationKind::kBackwardWeight);
          if (follows && lane[i].unit == lane[j].unit && rng.below(2) == 0) {
            std::swap(lane[i], lane[j]);
            return "swapped operations " + std::to_string(i) + " and " + std::to_string(j) +
                   " of a unit";
          }
        }
      }
      return "";
    }
  }
}

TEST(RandomPrograms, AreRefusedOnceBroken) {
  int broken = 0;
  for (std::uint64_t i = 0; i < kCases; ++i) {
    Rng rng(kSeed + 1, i);
    const RandomCase instance = make_random_case(rng);
    const std::vector<std::string> names = oracle::schedules_for(instance.plan);
    const std::string schedule = names[below(rng, names.size())];
    Program program = build_program(instance.plan, instance.assignment, instance.costs, schedule);
    ReplicaProgram& replica = program.replicas[below(rng, program.replicas.size())];
    const std::string what = break_for_sure(rng, replica.lanes[below(rng, replica.lanes.size())]);
    if (what.empty()) {
      continue;
    }
    ++broken;
    ASSERT_NE(refusal(program, instance), "") << what << "\n" << label(i, schedule, instance);
  }
  EXPECT_GE(broken, 1000);
}

// Whether messages arrive and every operation runs when each lane goes through its list one by one
// and only sends do not wait: an obvious replay, not the validator's graph.
class ListReplay {
 public:
  ListReplay(const Program& program, const ReplicaProgram& replica, int index)
      : program_(program), replica_(replica), index_(index), sent_(replica.channels.size()) {}

  bool finishes() {
    std::vector<std::size_t> next(replica_.lanes.size(), 0);
    received_.assign(replica_.channels.size(), 0);
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t lane = 0; lane < replica_.lanes.size(); ++lane) {
        while (next[lane] < replica_.lanes[lane].size() && run(replica_.lanes[lane][next[lane]])) {
          ++next[lane];
          moved = true;
        }
      }
    }
    for (std::size_t lane = 0; lane < replica_.lanes.size(); ++lane) {
      if (next[lane] < replica_.lanes[lane].size()) {
        return false;
      }
    }
    return true;
  }

 private:
  using Units = std::vector<UnitKey>;

  static bool holds(const Units& units, const UnitKey& unit) {
    return std::find(units.begin(), units.end(), unit) != units.end();
  }

  [[nodiscard]] int lane_of(const UnitKey& unit) const {
    for (int lane = 0; lane < program_.num_lanes(); ++lane) {
      const auto& stages = program_.lanes[static_cast<std::size_t>(lane)];
      if (std::find(stages.begin(), stages.end(), StageRef{unit.module, unit.stage}) !=
          stages.end()) {
        return lane;
      }
    }
    return -1;
  }

  // Posted receives, and what has been sent: a message is there when both hold and the channel's
  // earlier ones are there.
  [[nodiscard]] bool arrived(const UnitKey& unit, bool gradient) const {
    for (std::size_t c = 0; c < sent_.size(); ++c) {
      if (replica_.channels[c].gradient == gradient &&
          replica_.channels[c].producer == StageRef{unit.module, unit.stage}) {
        const std::size_t there = std::min(sent_[c].size(), received_[c]);
        return std::find(sent_[c].begin(),
                         sent_[c].begin() + static_cast<std::ptrdiff_t>(there),
                         unit) != sent_[c].begin() + static_cast<std::ptrdiff_t>(there);
      }
    }
    return false;
  }

  bool run(const Operation& operation) {
    const UnitKey& unit = operation.unit;
    if (operation.kind == OperationKind::kSend) {
      auto& sent = sent_[static_cast<std::size_t>(operation.channel)];
      sent.push_back(unit);
    } else if (operation.kind == OperationKind::kReceive) {
      ++received_[static_cast<std::size_t>(operation.channel)];
    } else if (operation.kind == OperationKind::kForward) {
      for (const UnitKey& input : forward_inputs(program_, index_, unit)) {
        if (lane_of(input) == lane_of(unit) ? !holds(forwards_, input) : !arrived(input, false)) {
          return false;
        }
      }
      forwards_.push_back(unit);
    } else if (operation.kind == OperationKind::kBackwardWeight) {
      return holds(backwards_, unit);
    } else if (makes_gradient(operation)) {
      if (!holds(forwards_, unit)) {
        return false;
      }
      for (const UnitKey& input : backward_inputs(program_, index_, unit)) {
        if (lane_of(input) == lane_of(unit) ? !holds(backwards_, input) : !arrived(unit, true)) {
          return false;
        }
      }
      backwards_.push_back(unit);
    }
    return true;
  }

  const Program& program_;
  const ReplicaProgram& replica_;
  int index_;
  std::vector<Units> sent_;            // [channel]
  std::vector<std::size_t> received_;  // [channel]: receives posted
  Units forwards_;
  Units backwards_;  // whole ones and input halves
};

// Sends in the order of their producers and receives in the order of the sends, anything else moved
// at will: the validator must say yes exactly when the obvious replay finishes.
TEST(RandomPrograms, AreAcceptedAfterAMoveExactlyWhenTheyStillRun) {
  int accepted = 0;
  int refused = 0;
  for (std::uint64_t i = 0; i < 2 * kCases; ++i) {
    Rng rng(kSeed + 2, i);
    const RandomCase instance = make_random_case(rng);
    const std::vector<std::string> names = oracle::schedules_for(instance.plan);
    const std::string schedule = names[below(rng, names.size())];
    Program program = build_program(instance.plan, instance.assignment, instance.costs, schedule);
    const std::size_t index = below(rng, program.replicas.size());
    ReplicaProgram& replica = program.replicas[index];
    std::vector<Operation>& lane = replica.lanes[below(rng, replica.lanes.size())];
    // Neighbouring compute operations change places together with their sends.
    std::vector<std::size_t> compute;
    for (std::size_t p = 0; p < lane.size(); ++p) {
      if (is_compute(lane[p])) {
        compute.push_back(p);
      }
    }
    if (compute.size() < 2) {
      continue;
    }
    const std::size_t from = below(rng, compute.size());
    std::size_t begin = compute[from];
    std::size_t end = begin + 1;
    while (end < lane.size() && lane[end].kind == OperationKind::kSend) {
      ++end;
    }
    const std::vector<Operation> moved(lane.begin() + static_cast<std::ptrdiff_t>(begin),
                                       lane.begin() + static_cast<std::ptrdiff_t>(end));
    lane.erase(lane.begin() + static_cast<std::ptrdiff_t>(begin),
               lane.begin() + static_cast<std::ptrdiff_t>(end));
    std::size_t body = lane.size();
    while (body > 0 && lane[body - 1].unit.module < 0) {
      --body;
    }
    lane.insert(lane.begin() + static_cast<std::ptrdiff_t>(below(rng, body + 1)),
                moved.begin(),
                moved.end());
    const std::string reason = refusal(program, instance);
    const bool in_order = reason.find("the sender's message number") == std::string::npos &&
                          reason.find("stands before what it sends") == std::string::npos;
    if (!in_order) {
      ++refused;  // channel orders differ, which the replay does not look at
      continue;
    }
    const bool runs = ListReplay(program, replica, static_cast<int>(index)).finishes();
    ASSERT_EQ(reason.empty(), runs) << reason << "\n" << label(i, schedule, instance);
    ++(runs ? accepted : refused);
  }
  std::printf("%d accepted, %d refused, seed %lu\n", accepted, refused, kSeed + 2);
  EXPECT_GE(accepted, 100);
  EXPECT_GE(refused, 100);
}

}  // namespace
}  // namespace entrain
