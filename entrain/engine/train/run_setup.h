// Everything that stays fixed during a run: model, data, plan and costs, checked against each
// other.
//
// Read first: prepare_run(). After it, nothing about the run can be wrong for a reason the caller
// could have known before the first step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/cost/memory.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/dataset/global_batch.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/spec/media.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/timeline.h"

#include "entrain/engine/train/resume.h"
#include "entrain/engine/train/run_config.h"

namespace entrain::engine {

// An index with the work of every sample under the run's model.
struct DataSet {
  Index index;
  std::vector<SampleWork> work;    // [sample]
  std::vector<std::string> notes;  // media that are ignored, as check_media() says it
};

// `ignored` are kMediaNames that the model may have no encoder for, `option` how they were named.
//
// Throws  InvalidInput when the index holds estimates only, was made with another tokenizer or
//         template, holds a sample longer than the model's max_tokens, media the engine cannot
//         read, or media that are neither for an encoder nor ignored.
DataSet load_data_set(const std::string& path,
                      const ModelSpec& model,
                      const std::vector<std::string>& ignored = {},
                      const MediaOption& option = kIgnoreKey);

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

RunSetup prepare_run(const RunConfig& config);

// The run's global batches: a pure function of the data, the seed and [data].
GlobalBatchSampler batches_of(const RunSetup& setup);
// How many steps an epoch and the run have, and what becomes of an epoch's last samples.
std::string epoch_note(const RunSetup& setup);

// How the run holds parameters, gradients and optimizer state; for lane_states().
StateOptions state_options(const RunSetup& setup);

// One step as every rank sees it.
struct PreparedStep {
  std::int64_t step = 0;
  std::vector<int> batch;  // sample indices in the data set, in drawn order
  std::vector<std::string> sample_ids;
  StepCosts costs;  // no reduction and no optimizer where the step does not end an update
  StepAssignment assignment;
  Program program;
  std::int64_t target_tokens = 0;  // with loss, over all replicas
  // Of all steps of the update that this one belongs to (optimizer.update_every).
  std::int64_t update_target_tokens = 0;
  std::int64_t llm_tokens = 0;
  std::int64_t encoder_tokens = 0;
  Timeline predicted;  // without events
  std::string digest;  // step_digest.h
};

// The costs of that step's global batch, without assigning it.
StepCosts costs_of_step(const RunSetup& setup, std::int64_t step);

// Pure function of (setup, step): the global batch, its assignment and its program, validated.
PreparedStep prepare_step(const RunSetup& setup, std::int64_t step);

// Validation batches: consecutive samples in index order, policy `sequential`; a rest too small to
// give every replica one goes with the batch before. None where the samples are fewer than
// replicas.
std::vector<PreparedStep> prepare_validation(const RunSetup& setup);

}  // namespace entrain::engine
