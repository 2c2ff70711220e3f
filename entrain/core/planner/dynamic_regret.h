// The most that re-planning for every single global batch could gain over one static plan.
#pragma once

#include <cstdint>
#include <functional>

#include "entrain/core/planner/plan_candidate.h"

namespace entrain {

struct DynamicRegret {
  int batches = 0;
  std::int64_t static_ns = 0;   // mean step time of the static plan
  std::int64_t dynamic_ns = 0;  // mean over batches of the fastest plan found for that batch alone
  std::int64_t bound_ns = 0;    // mean over batches of a bound on all plans for that batch
  bool complete = true;         // every batch's search was

  // Of the static plan relative to a new plan for every batch at no cost of switching.
  [[nodiscard]] double regret() const;
  // At most, whatever plans are tried: static_ns / bound_ns - 1.
  [[nodiscard]] double most() const;
};

// A search for every batch of `request` separately, each with most_simulations of the request; the
// static plan is among the plans of each, with its cut.
//
// Requires  a plan of the request's space.
// Ensures   bound_ns <= dynamic_ns <= static_ns; a pure function of its arguments (`done` apart,
//           which is called before each batch with the number so far and may be empty).
// Throws    as search_plans() does; NothingFits if the static plan does not fit on a batch.
// Cost      one search per batch.
DynamicRegret dynamic_regret(const PlanSearchRequest& request,
                             const Plan& static_plan,
                             const std::function<void(int)>& done);

}  // namespace entrain
