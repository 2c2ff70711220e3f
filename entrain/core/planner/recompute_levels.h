// How many layers each stage of a plan recomputes, from none to all, one step at a time.
//
// Read first: recompute_levels(). The search for plans looks for the first step that fits.
#pragma once

#include <span>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/workload.h"

namespace entrain {

using RecomputeCounts = std::vector<std::vector<int>>;  // [module][stage], as ModulePlan::recompute

struct RecomputeLevels {
  std::vector<RecomputeCounts> levels;  // at least one; the first recomputes nothing, the last all
  int guess = 0;  // the first at which every lane keeps its limit by the estimate below
};

// A lane's bytes are estimated as the mean slot's activations times the slots that 1F1B (or GPipe)
// holds on it, plus the largest restored layer. A level is a share of the lanes' limits:
// every lane recomputes the fewest layers that bring its estimate under that share of its limit, so
// that lanes that are short of memory recompute first and most. Of several stages on a lane each
// recomputes the same share of its layers, rounded up. The levels do not guarantee a fit: the
// estimate only gives the order of trials.
//
// Requires  a valid plan whose lanes have limits; `batch` is the batch it was made for, not empty.
// Ensures   from level to level no stage recomputes fewer layers and some stage more.
// Throws    InvalidInput as step_costs() does.
// Cost      O(layers²).
RecomputeLevels recompute_levels(const ModelSpec& model,
                                 const Plan& plan,
                                 const Profile& profile,
                                 std::span<const SampleWork> batch);

// Every layer of the plan.
RecomputeCounts full_recompute(const Plan& plan);

// Modules of which no layer is recomputed, or all of them with empty counts, get none.
void set_recompute(const RecomputeCounts& counts, Plan& plan);

// Layers that a plan recomputes in all, on one replica.
int recomputed_layers(const Plan& plan);

}  // namespace entrain
