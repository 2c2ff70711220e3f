// What an operation waits for: a lane looks at the inputs of its next operation one after another
// and stops at the first that is not known yet.
#pragma once

#include "entrain/core/simulator/state.h"
#include "entrain/core/simulator/tables.h"
#include "entrain/core/spec/program.h"

namespace entrain::simulation {

class Inputs {
 public:
  Inputs(const Program& program, const StageTable& stages) : program_(program), stages_(stages) {}

  // Whether all inputs of a forward, or of what makes a unit's input gradient, are known;
  // lane.inputs_ready is then the latest. Otherwise lane.waiting_for is what is missing, or nullptr
  // where only operations behind this one on its lane could make it. Each input is looked at once.
  bool forward_ready(LaneState& lane,
                     const ReplicaState& replica,
                     const UnitKey& key,
                     int unit) const;
  bool gradient_ready(LaneState& lane,
                      const ReplicaState& replica,
                      const UnitKey& key,
                      int unit) const;

  // Whether a channel's message of a unit has been made on the sending lane.
  [[nodiscard]] bool produced(const LaneState& lane,
                              const ReplicaState& replica,
                              const Channel& channel,
                              const UnitKey& key,
                              int unit) const;

 private:
  [[nodiscard]] bool takers_done(const LaneState& lane,
                                 const ReplicaState& replica,
                                 const UnitKey& key) const;

  const Program& program_;
  const StageTable& stages_;
};

}  // namespace entrain::simulation
