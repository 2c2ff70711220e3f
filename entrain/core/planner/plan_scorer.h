// Configurations of a cluster made into plans and simulated: what the search and its explanations
// have in common.
#pragma once

#include <cstdint>
#include <string>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/planner/plan_bound.h"
#include "entrain/core/planner/plan_search.h"
#include "entrain/core/planner/plan_space.h"

namespace entrain {

class PlanScorer {
 public:
  // `request` must outlive the scorer.
  // Throws  as search_plans() does.
  explicit PlanScorer(const PlanSearchRequest& request);
  PlanScorer(const PlanScorer&) = delete;
  PlanScorer& operator=(const PlanScorer&) = delete;

  [[nodiscard]] const PlanSpace& space() const { return space_; }
  [[nodiscard]] const PlanBounds& bounds() const { return bounds_; }
  [[nodiscard]] std::int64_t num_batches() const;

  // Cuts the layers and lays out lanes; no step is simulated. kNoFit with a reason where state
  // leaves a lane no room.
  // Requires  memory does not forbid every cut.
  [[nodiscard]] PlanCandidate make_candidate(const PlanConfig& config) const;

  // Simulates batch after batch, as long as the steps so far and the bounds of the others stay
  // under `stop_at` in sum.
  // Ensures  the state tells how it ended; mean_ns as PlanCandidate has it.
  void simulate(PlanCandidate& candidate, std::int64_t stop_at);
  [[nodiscard]] int simulated_steps() const { return simulated_steps_; }

 private:
  [[nodiscard]] StepCosts costs_of(const Plan& plan, std::size_t batch) const;

  const PlanSearchRequest& request_;
  PlanSpace space_;
  PlanBounds bounds_;
  int simulated_steps_ = 0;
};

std::int64_t total_ns(const PlanCandidate& candidate);

}  // namespace entrain
