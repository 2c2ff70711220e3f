// Static memory of every device during training: parameters, gradients and optimizer states, and
// what remains for activations.
//
// Read first: lane_states(), then activation_room(). Activations themselves depend on the order of
// operations: step_costs.h gives their bytes, the simulator their peak.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

struct StateOptions {
  std::string parameter_dtype = "float32";  // as in dtype_bytes()
  bool shard_optimizer = false;  // optimizer states sharded over replicas and context ranks
};

// Static bytes of one device of a lane.
struct StateBytes {
  std::int64_t parameter_bytes = 0;
  std::int64_t gradient_bytes = 0;
  std::int64_t optimizer_bytes = 0;
  [[nodiscard]] std::int64_t total_bytes() const {
    return parameter_bytes + gradient_bytes + optimizer_bytes;
  }
  bool operator==(const StateBytes&) const = default;
};

// Parameters are those of LayerCounts::per_device() at each module's tensor parallelism; gradients
// and optimizer states exist only for trainable ones. Gradients are added up in float32. The
// optimizer is AdamW: two float32 moments per parameter, and a float32 master copy if parameters
// are not float32 themselves. If sharded, a stage's optimizer states divide by replicas ×
// context_parallel, rounded up. Temporary buffers of reductions and gathers are not counted: they
// belong in a reserve.
//
// Shapes    result: [lane].
// Requires  a plan that is valid for the model, without sharding_obstacle().
// Throws    InvalidInput for an unknown dtype.
// Cost      O(layers).
std::vector<StateBytes> lane_states(const ModelSpec& model,
                                    const Plan& plan,
                                    const StateOptions& options);

struct LaneShortage {
  int lane = 0;
  std::int64_t missing_bytes = 0;  // > 0, per device, to hold one byte of activations
  bool operator==(const LaneShortage&) const = default;
};

// Bytes that lanes have for activations, or why a plan is impossible.
struct ActivationRoom {
  std::vector<std::int64_t> lane_bytes;   // [lane] for PlanLimits, > 0; empty: no limit, or short
  std::vector<LaneShortage> short_lanes;  // in rising order
  [[nodiscard]] bool fits() const { return short_lanes.empty(); }
};

// memory_bytes is a device's memory (ClusterSpec::memory_bytes, 0 = no limit); reserve_bytes is
// kept free for memory that the model does not count: the runtime's context, libraries' workspaces,
// message buffers, fragmentation.
//
// Throws    InvalidInput when a number of bytes is negative.
ActivationRoom activation_room(std::span<const StateBytes> states,
                               std::int64_t memory_bytes,
                               std::int64_t reserve_bytes);

}  // namespace entrain
