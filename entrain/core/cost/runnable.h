// What this project's engine can run of plans and data: the one list that `entrain
// plan` plans with and `entrain train` checks.
#pragma once

#include <string>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/program.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

inline constexpr int kMostContextParallel = 1;

// Tied embeddings on two stages have no exchange of gradients yet.
inline bool engine_runs(OperationKind kind) {
  return kind != OperationKind::kSyncTied;
}

// Images, audio and text; video only if every vision encoder says how it is sampled.
bool engine_reads(const ModelSpec& model, const SampleSizes& sample);

// Requires  a plan that is valid for the model.
// Throws    InvalidInput with `where` and the module if the engine cannot run the plan: context
//           parallelism, or a tensor parallelism with a sharding_obstacle().
void check_runnable(const Plan& plan, const ModelSpec& model, const std::string& where);

// Removes entries at degrees that the engine does not run from the profile, so that no search uses
// them. Returns what was removed ("context parallelism 2, 4, 8"); empty if nothing was.
//
// Throws  InvalidInput if a module would have no entry left.
std::string keep_runnable(Profile& profile);

}  // namespace entrain
