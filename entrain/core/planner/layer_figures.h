// Costs of single layers over several global batches, as numbers that never exceed the truth: the
// basis of bounds that hold for every cut of layers and every number of recomputed layers,
// which only add time and only reduce kept bytes.
//
// Read first: LayerFigures. Layers of one kind within a module cost the same, so stages of
// neighbours of one kind give the cost of each.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/cost/memory.h"
#include "entrain/core/planner/plan_shape.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/workload.h"

namespace entrain {

using Batches = std::vector<std::vector<SampleWork>>;  // [batch][sample]

// One module at one pair of degrees. Times of a stage are rounded once per unit and operation;
// lower numbers here allow for that (work: subtract rounding_ns per stage).
struct LayerFigures {
  // [batch][layer] forward of all units, and backward if training certainly runs it.
  std::vector<std::vector<std::int64_t>> work_ns;
  std::vector<std::int64_t> rounding_ns;        // [batch] that a stage's work may fall short of it
  std::vector<std::int64_t> least_forward_ns;   // [layer] of the cheapest unit, launch included
  std::vector<std::int64_t> least_backward_ns;  // likewise; with split backward the input half
  std::vector<std::int64_t> launch_ns;          // [layer] forward and backward, once each
  std::vector<std::int64_t> unit_bytes;         // [layer] activations of the largest unit
  std::vector<std::int64_t> recomputed_bytes;   // [layer] bytes it keeps of them if recomputed
  // [batch][sample] the longest forward and backward path through the module: an encoder's heaviest
  // segment, 0 without one; the LLM's sample.
  std::vector<std::vector<std::int64_t>> chain_ns;

  [[nodiscard]] int num_layers() const { return static_cast<int>(launch_ns.size()); }
};

// Figures that depend on the number of replicas.
struct ReplicaFigures {
  std::vector<std::int64_t> reduce_ns;     // [layer] at the end of the step
  std::vector<std::int64_t> optimizer_ns;  // [layer]
  std::vector<std::int64_t> state_bytes;   // [layer] parameters, gradients, optimizer; per device
};

struct FigureOptions {
  bool splits_backward = false;  // the schedule may run the input half separately
  bool chunks = false;           // LLM work may be cut, so no LLM path or unit is certain
  // Samples besides those of the batches, whose units count only for unit_bytes and
  // recomputed_bytes.
  std::vector<SampleWork> further{};
};

// Shapes  result: [module][index into degrees[module]].
// Throws  InvalidInput as step_costs() does.
// Cost    O(units × pairs of degrees), neighbouring equal segments of a sample being one unit.
std::vector<std::vector<LayerFigures>> layer_figures(
    const ModelSpec& model,
    const Profile& profile,
    const Batches& batches,
    const std::vector<std::vector<Degrees>>& degrees,
    const FigureOptions& options);

// Shapes  result: [module][index into degrees[module]].
// Throws  InvalidInput as step_costs() and lane_states() do.
// Cost    O(pairs of degrees × layers).
std::vector<std::vector<ReplicaFigures>> replica_figures(
    const ModelSpec& model,
    const Profile& profile,
    const std::vector<std::vector<Degrees>>& degrees,
    int replicas,
    const StateOptions& state);

}  // namespace entrain
