// The Entrain paper's own plan: devices by rounded work shares, then its closed formula.
//
// Read first: proportional_plan(). A baseline for studies; search_plans() decides by simulation.
#pragma once

#include <cstdint>
#include <string>

#include "entrain/core/planner/plan_candidate.h"

namespace entrain {

struct FormulaPlan {
  Plan plan;
  PlanShape config;
  std::int64_t formula_ns = 0;  // step time by the formula; not simulated
  std::string reason;           // why there is none; empty if there is one

  [[nodiscard]] bool fits() const { return reason.empty(); }
};

// For every number of replicas D such that D · µ divides the global batch: each module gets devices
// in proportion to its share of the work of all batches (ratio of sums), rounded to the nearest
// numbers that a configuration with separate lanes has; of all {TP, CP, stages} with these
// numbers, layers cut by partition_layers(), the one with the least
// T = Σ τ + (K - 1) · max τ, τ = mean time of a slot on a lane, K = B / (D · µ). The D of least T
// wins, which is that of highest D · K / T. The batches should together hold at least the stable
// number of samples.
//
// Layers are never recomputed.
//
// Throws    as search_plans() does.
// Cost      a walk through the space; no simulation.
// Source    the paper's algorithm 2. Ours omits its term for resharding, and uses shares of
//           device time if a module's first degrees are not one device.
FormulaPlan proportional_plan(const PlanSearchRequest& request);

}  // namespace entrain
