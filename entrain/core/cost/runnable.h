// What this project's engine runs of what a plan and its data can say: the one list that `entrain
// plan` plans by and `entrain train` refuses by.
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

// Images, audio and text; no video.
inline bool engine_reads(const SampleSizes& sample) {
  return sample.videos.empty();
}

// Why the engine cannot run the plan: context parallelism, or a tensor parallelism with a
// sharding_obstacle(). Names the module; empty where it can.
//
// Requires  a plan that is valid for the model.
std::string engine_obstacle(const Plan& plan, const ModelSpec& model);

// Throws  InvalidInput with `where` where there is an engine_obstacle().
void check_runnable(const Plan& plan, const ModelSpec& model, const std::string& where);

// Takes entries at degrees that the engine does not run out of the profile, so that no search finds
// them. Says what was left out ("context parallelism 2, 4, 8"); empty where nothing was.
//
// Throws  InvalidInput where a module would be left with no entry.
std::string keep_runnable(Profile& profile);

}  // namespace entrain
