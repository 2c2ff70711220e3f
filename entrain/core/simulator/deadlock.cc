#include "entrain/core/simulator/deadlock.h"

#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain::simulation {
namespace {

struct LaneRef {
  int replica = 0;
  int lane = 0;
  bool operator==(const LaneRef&) const = default;
};

bool makes_gradient(OperationKind kind) {
  return kind == OperationKind::kBackward || kind == OperationKind::kBackwardInput;
}

class Diagnosis {
 public:
  Diagnosis(const Program& program,
            const StageGraph& stages,
            const std::vector<std::vector<StuckLane>>& stuck)
      : program_(program), stages_(stages), stuck_(stuck) {}

  std::string text() const {
    std::vector<LaneRef> path = {first_stuck()};
    while (true) {
      const LaneRef supplier = supplier_of(path.back());
      if (done(supplier)) {
        return fmt::format(
            "the program cannot finish: {} waits for an output that no operation of replica "
            "{} lane {} produces",
            name(path.back()),
            supplier.replica,
            supplier.lane);
      }
      const auto seen = std::find(path.begin(), path.end(), supplier);
      if (seen != path.end()) {
        path.erase(path.begin(), seen);
        return cycle_text(path);
      }
      path.push_back(supplier);
    }
  }

 private:
  [[nodiscard]] const std::vector<Operation>& list(LaneRef ref) const {
    return program_.replicas[at(ref.replica)].lanes[at(ref.lane)];
  }
  [[nodiscard]] const StuckLane& state(LaneRef ref) const {
    return stuck_[at(ref.replica)][at(ref.lane)];
  }
  [[nodiscard]] bool done(LaneRef ref) const { return at(state(ref).position) == list(ref).size(); }
  [[nodiscard]] const Operation& operation(LaneRef ref) const {
    return list(ref)[at(state(ref).position)];
  }
  [[nodiscard]] std::string name(LaneRef ref) const {
    return fmt::format("replica {} lane {} operation {} ({})",
                       ref.replica,
                       ref.lane,
                       state(ref).position,
                       to_string(program_, operation(ref)));
  }

  [[nodiscard]] LaneRef first_stuck() const {
    for (std::size_t replica = 0; replica < stuck_.size(); ++replica) {
      for (std::size_t lane = 0; lane < stuck_[replica].size(); ++lane) {
        const LaneRef ref{static_cast<int>(replica), static_cast<int>(lane)};
        if (!done(ref)) {
          return ref;
        }
      }
    }
    ENTRAIN_INVARIANT(false, "a deadlock without a waiting lane");
  }

  [[nodiscard]] std::string cycle_text(const std::vector<LaneRef>& path) const {
    if (path.size() == 1) {
      return fmt::format(
          "the program cannot finish: {} waits for an operation that is after it on its lane "
          "or does not exist",
          name(path.front()));
    }
    std::string text = "the program cannot finish, these operations wait for each other: ";
    for (const LaneRef ref : path) {
      text += name(ref) + " waits for ";
    }
    return text + fmt::format("the first (lane {})", path.front().lane);
  }

  // Whether `wanted` ran: a lane's operations before its position did.
  template <class Matches>
  [[nodiscard]] bool ran(LaneRef ref, const Matches& matches) const {
    const auto end = list(ref).begin() + state(ref).position;
    return std::find_if(list(ref).begin(), end, matches) != end;
  }

  // The lane that must continue before this one can.
  [[nodiscard]] LaneRef supplier_of(LaneRef ref) const {
    const Operation& waiting = operation(ref);
    const UnitKey& unit = waiting.unit;
    if (waiting.kind == OperationKind::kForward) {
      return missing_input(ref, forward_inputs(program_, ref.replica, unit), false);
    }
    if (makes_gradient(waiting.kind) && forward_ran(ref, unit)) {
      return missing_input(ref, backward_inputs(program_, ref.replica, unit), true);
    }
    if (waiting.kind == OperationKind::kReduceGradients) {
      for (int replica = 0; replica < static_cast<int>(stuck_.size()); ++replica) {
        const LaneRef other{replica, ref.lane};
        if (!(state(other).at_barrier && operation(other).kind == waiting.kind)) {
          return other;
        }
      }
    }
    if (waiting.kind == OperationKind::kClipNorm) {
      for (int replica = 0; replica < static_cast<int>(stuck_.size()); ++replica) {
        for (int lane = 0; lane < program_.num_lanes(); ++lane) {
          const LaneRef other{replica, lane};
          if (!(state(other).at_barrier && operation(other).kind == waiting.kind)) {
            return other;
          }
        }
      }
    }
    return ref;
  }

  [[nodiscard]] bool forward_ran(LaneRef ref, const UnitKey& unit) const {
    return ran(ref, [&](const Operation& operation) {
      return operation.kind == OperationKind::kForward && operation.unit == unit;
    });
  }

  // Lane of the first input that has not been made or, across lanes, not been sent.
  [[nodiscard]] LaneRef missing_input(LaneRef ref,
                                      const std::vector<UnitKey>& inputs,
                                      bool gradient) const {
    for (const UnitKey& input : inputs) {
      const LaneRef source{ref.replica, stages_.of(input.module, input.stage).lane};
      const bool crosses = source != ref;
      // A gradient travels under the key of the unit that takes it.
      const UnitKey& message = gradient && crosses ? operation(ref).unit : input;
      const bool arrived = ran(source, [&](const Operation& operation) {
        if (crosses) {
          return operation.kind == OperationKind::kSend && operation.unit == message &&
                 program_.replicas[at(ref.replica)].channels[at(operation.channel)].gradient ==
                     gradient;
        }
        return operation.unit == message && (gradient ? makes_gradient(operation.kind)
                                                      : operation.kind == OperationKind::kForward);
      });
      if (!arrived) {
        return source;
      }
    }
    return ref;
  }

  const Program& program_;
  const StageGraph& stages_;
  const std::vector<std::vector<StuckLane>>& stuck_;
};

}  // namespace

std::string describe_deadlock(const Program& program,
                              const StageGraph& stages,
                              const std::vector<std::vector<StuckLane>>& stuck) {
  return Diagnosis(program, stages, stuck).text();
}

}  // namespace entrain::simulation
