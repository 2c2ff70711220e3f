// What single layers cost over several global batches, as numbers that never exceed the truth: the
// raw material of bounds that hold for every cut of layers and every number of recomputed layers,
// which only add time and only keep less.
//
// Read first: LayerFigures. Layers of one kind within a module cost the same, so that stages of
// neighbours of one kind tell the cost of each.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/cost/memory.h"
#include "entrain/core/planner/plan_space.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/workload.h"

namespace entrain {

using Batches = std::vector<std::vector<SampleWork>>;  // [batch][sample]

// One module at one pair of degrees. Times of a stage are rounded once per unit and operation;
// lower numbers here leave room for that (work: rounding_ns to be taken off per stage).
struct LayerFigures {
  // [batch][layer] forward of all units, and backward where training certainly runs it.
  std::vector<std::vector<std::int64_t>> work_ns;
  std::vector<std::int64_t> rounding_ns;        // [batch] that a stage's work may fall short of it
  std::vector<std::int64_t> least_forward_ns;   // [layer] of the cheapest unit, launch included
  std::vector<std::int64_t> least_backward_ns;  // likewise; with split backward the input half
  std::vector<std::int64_t> launch_ns;          // [layer] forward and backward, once each
  std::vector<std::int64_t> unit_bytes;         // [layer] activations of the largest unit
  std::vector<std::int64_t> recomputed_bytes;   // [layer] what it keeps of them where recomputed
  // [batch][sample] the longest way through the whole module and back: an encoder's heaviest
  // segment, 0 without one; the LLM's sample.
  std::vector<std::vector<std::int64_t>> chain_ns;

  [[nodiscard]] int num_layers() const { return static_cast<int>(launch_ns.size()); }
};

// What depends on the number of replicas.
struct ReplicaFigures {
  std::vector<std::int64_t> reduce_ns;     // [layer] at the end of the step
  std::vector<std::int64_t> optimizer_ns;  // [layer]
  std::vector<std::int64_t> state_bytes;   // [layer] parameters, gradients, optimizer; per device
};

struct FigureOptions {
  bool splits_backward = false;  // the schedule may run the input half alone
  bool chunks = false;           // LLM work may be cut, so that no LLM way or unit is certain
  // Samples beside those of the batches whose units count for unit_bytes and recomputed_bytes
  // alone.
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
