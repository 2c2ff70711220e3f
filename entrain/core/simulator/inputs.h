// The inputs of an operation: a lane checks the inputs of its next operation one after another
// and stops at the first that is not known yet.
#pragma once

#include "entrain/core/simulator/state.h"
#include "entrain/core/spec/program.h"

namespace entrain::simulation {

// A unit in the replay.
struct UnitRef {
  int group = 0;  // number
  int stage = 0;  // number
  int unit = 0;
};

class Inputs {
 public:
  explicit Inputs(const StageGraph& stages) : stages_(stages) {}

  // Whether all inputs of a forward, or of the operation that computes a unit's input gradient, are
  // known; lane.inputs_ready is then the latest. Otherwise lane.waiting_for is the missing one, or
  // nullptr if only later operations of its own lane could produce it. Checks each input once.
  bool forward_ready(ReplayLane& lane, const ReplayReplica& replica, const UnitRef& ref) const;
  bool gradient_ready(ReplayLane& lane, const ReplayReplica& replica, const UnitRef& ref) const;

  // Whether a channel's message of a unit has been produced on the sending lane.
  [[nodiscard]] bool produced(const ReplayReplica& replica,
                              bool gradient,
                              const UnitRef& ref) const;

 private:
  [[nodiscard]] bool takers_done(const ReplayReplica& replica, const UnitRef& ref) const;
  [[nodiscard]] const StageGraph::Stage& place(const UnitRef& ref) const {
    return stages_.stages[static_cast<std::size_t>(ref.stage)];
  }

  const StageGraph& stages_;
};

}  // namespace entrain::simulation
