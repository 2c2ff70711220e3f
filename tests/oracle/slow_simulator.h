// The rules of simulator.h taken word for word: passes over all operations until nothing changes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/simulator/simulator.h"
#include "entrain/core/spec/program.h"

namespace entrain::oracle {

struct SlowOperation {
  std::chrono::nanoseconds start{0};
  std::chrono::nanoseconds finish{0};
};

struct SlowTimeline {
  // [replica][lane][position]; receives have none; others stay empty where nothing lets them run.
  std::vector<std::vector<std::vector<std::optional<SlowOperation>>>> operations;
  std::vector<std::vector<SlowOperation>> buckets;  // [lane]; with reduce_buckets, as they run
  bool finished = false;                            // every operation ran
  std::chrono::nanoseconds makespan{0};
};

// Ignores options.events and options.stop_after.
SlowTimeline slow_simulate(const Program& program,
                           const StepCosts& costs,
                           const SimulateOptions& options = {});

// The lane that runs the unit's stage; -1 when none does.
int lane_of(const Program& program, const UnitKey& unit);

}  // namespace entrain::oracle
