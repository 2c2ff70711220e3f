// What `entrain plan` plans from, and its results as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/planner/lane_split.h"
#include "entrain/core/planner/plan_neighbours.h"
#include "entrain/core/planner/plan_score.h"
#include "entrain/core/planner/plan_search.h"
#include "entrain/core/study/study.h"

namespace entrain::cli {

struct PlanStudy {
  Study study;  // where not for_study, without costs at degrees that the engine does not run
  bool for_study = false;
  std::string left_out;  // in words; may be empty
};

// Warns on standard error of samples that the engine does not read, where not `for_study`.
// Throws  as open_study() and keep_runnable() do.
PlanStudy load_plan_study(const StudyInputs& inputs, bool for_study);

// The plan's step as the searches score it: mean time over the study's batches 0 … steps - 1, or as
// many as are given; or why one of them does not fit. Peaks are missing.
// Cost  steps × one assignment.
StepScore mean_step(const Study& study, Plan plan, std::int64_t steps);

// A line that says how much faster the plan's step is under the schedule `entrain`; empty if it is
// not, or if that or another policy than `entrain` is the plan's. best_ns: its own mean_step().
std::string faster_schedule(const Study& study,
                            Plan plan,
                            std::int64_t best_ns,
                            std::int64_t steps);

// The first lines of a page.
std::string heading(const PlanStudy& input);

// The plan with where its costs come from.
Json plan_json(const PlanStudy& input, const Plan& plan);
Json splits_json(const LaneSplitResult& result);
Json result_json(const PlanSearchResult& result, const PlanStudy& input);
Json neighbours_json(const std::vector<PlanNeighbour>& neighbours, const ModelSpec& model);

}  // namespace entrain::cli
