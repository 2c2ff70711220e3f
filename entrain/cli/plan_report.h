// A found plan as the document of a report: its lanes, the runners-up, and its first step drawn.
#pragma once

#include "entrain/core/base/json.h"
#include "entrain/core/planner/lane_split.h"
#include "entrain/core/planner/plan_search.h"

#include "entrain/cli/plan_study.h"

namespace entrain::cli {

// Requires  result.fits().
// Cost      one assigned and simulated step.
Json plan_report(const PlanStudy& input, const PlanSearchResult& result);
Json plan_report(const PlanStudy& input, const LaneSplitResult& result);

}  // namespace entrain::cli
