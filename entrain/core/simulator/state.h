// State of replicas, lanes and units during the replay of a step.
//
// Times are nanoseconds since the step's start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "entrain/core/graph/lane_clock.h"
#include "entrain/core/graph/step_graph.h"
#include "entrain/core/spec/program.h"

namespace entrain::simulation {

// A time that is not known yet.
constexpr std::int64_t kUnknown = -1;

struct UnitTimes {
  std::int64_t forward_finish = kUnknown;
  std::int64_t gradient_finish = kUnknown;   // of the backward, or of its input half
  std::int64_t output_arrival = kUnknown;    // of the unit's output on the next stage's lane
  std::int64_t gradient_arrival = kUnknown;  // of its output's gradient on the unit's lane
};

struct ReplayReplica {
  ReplayReplica(const StageGraph& stages, const ReplicaGraph& of)
      : graph(&of), clock(stages, of), times(static_cast<std::size_t>(of.num_units)) {}

  const ReplicaGraph* graph;
  ReplicaClock clock;
  std::vector<UnitTimes> times;  // [unit]
};

struct ReplayLane {
  int replica = 0;
  int lane = 0;
  ReplayReplica* state = nullptr;                // of its replica
  LaneClock* clock = nullptr;                    // likewise
  const std::vector<Operation>* list = nullptr;  // of the program
  int position = 0;                              // in the lane's list
  std::int64_t busy = 0;
  std::int64_t finish = 0;
  // Inputs of the operation at `position` that were checked, and the latest of them.
  int inputs_seen = 0;
  std::int64_t inputs_ready = 0;
  const std::int64_t* waiting_for = nullptr;  // the missing input
  bool at_barrier = false;
  int num_reduced = 0;
  int num_clipped = 0;
  std::int64_t reduce = 0;  // sums over the lane's stages
  std::int64_t optimizer = 0;
  std::int64_t left = 0;  // remaining work, if the replay has a limit
};

}  // namespace entrain::simulation
