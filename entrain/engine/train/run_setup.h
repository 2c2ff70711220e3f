// Everything that is fixed during a run: model, data, plan and costs, checked against each
// other.
//
// Read first: RunSetup; prepare_run() makes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "entrain/core/cost/memory.h"
#include "entrain/core/dataset/global_batch.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/workload.h"

#include "entrain/engine/train/data_set.h"
#include "entrain/engine/train/initial_weights.h"
#include "entrain/engine/train/resume.h"
#include "entrain/engine/train/run_config.h"

namespace entrain::engine {

// Whose analytic costs a run has without plan.profile.
inline constexpr const char* kAssumedDevice = "cpu-2core";

struct RunSetup {
  RunConfig config;  // with `steps` set if `epochs` is given
  ModelSpec model;
  Plan plan;
  Profile profile;
  DataSet train;
  DataSet validation;              // a separate index, or split off the training samples; or empty
  std::optional<Mixture> mixture;  // that draws, where the configuration has one
  std::vector<std::int64_t> hold_weights;  // [training sample] of Hold; empty where that is off
  std::vector<SampleWork> planned;         // [sample] of plan.index; empty: the training data's
  CheckpointRun identity;                  // identity of this run in its checkpoints
  std::optional<InitialWeights> initial;   // empty: drawn
  std::optional<ResumePoint> resume;       // empty: from the first step
  // Skipped checkpoints, and profile values that the first step uses outside their measured range;
  // see profile_range.h.
  std::vector<std::string> warnings;
};

// The run's global batches: a pure function of the data, the seed and [data].
GlobalBatchSampler batches_of(const RunSetup& setup);
// Steps per epoch and in the run, and the handling of an epoch's last samples.
std::string epoch_note(const RunSetup& setup);
// Where predicted times come from: plan.profile or, without one, kAssumedDevice.
std::string costs_note(const RunSetup& setup);

// How the run stores parameters, gradients and optimizer state; for lane_states().
StateOptions state_options(const RunSetup& setup);

}  // namespace entrain::engine
