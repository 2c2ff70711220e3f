// Everything that stays fixed during a run: model, data, plan and costs, checked against each
// other.
//
// Read first: RunSetup; prepare_run() makes it.
#pragma once

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
#include "entrain/engine/train/resume.h"
#include "entrain/engine/train/run_config.h"

namespace entrain::engine {

struct RunSetup {
  RunConfig config;  // with `steps` where it gives epochs
  ModelSpec model;
  Plan plan;
  Profile profile;
  DataSet train;
  DataSet validation;                 // another index, or split off the training samples; or empty
  std::vector<SampleWork> planned;    // [sample] of plan.index; empty: the training data's
  CheckpointRun identity;             // what checkpoints of this run say of it
  std::optional<ResumePoint> resume;  // empty: from the first step
  // Checkpoints that were passed over, and where the first step uses the profile beyond what it was
  // measured on; see profile_range.h.
  std::vector<std::string> warnings;
};

// The run's global batches: a pure function of the data, the seed and [data].
GlobalBatchSampler batches_of(const RunSetup& setup);
// How many steps an epoch and the run have, and what becomes of an epoch's last samples.
std::string epoch_note(const RunSetup& setup);

// How the run holds parameters, gradients and optimizer state; for lane_states().
StateOptions state_options(const RunSetup& setup);

}  // namespace entrain::engine
