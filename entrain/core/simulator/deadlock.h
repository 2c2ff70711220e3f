// Why a program cannot finish: the operations that wait for each other.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/graph/step_graph.h"
#include "entrain/core/spec/program.h"

namespace entrain::simulation {

// The state of a lane when nothing can run any more.
struct StuckLane {
  int position = 0;         // of the operation that cannot run; the list's size when done
  bool at_barrier = false;  // the operation has been reached and waits for other lanes
};

// Shapes    stuck: [replica][lane]; at least one lane is not done.
// Returns   "replica 0 lane 1 operation 3 (…) waits for replica 0 lane 0 operation 2 (…), which …".
std::string describe_deadlock(const Program& program,
                              const StageGraph& stages,
                              const std::vector<std::vector<StuckLane>>& stuck);

}  // namespace entrain::simulation
