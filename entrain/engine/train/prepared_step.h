// One step, the same on every rank: its global batch, where every sample is computed, and in what
// order.
//
// Read first: prepare_step(), a pure function of setup and step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/simulator/over_limit.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/program.h"
#include "entrain/core/spec/timeline.h"

#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

struct PreparedStep {
  std::int64_t step = 0;
  std::vector<int> batch;  // sample indices in the data set, in drawn order
  std::vector<std::string> sample_ids;
  StepCosts costs;  // no reduction and no optimizer if the step does not end an update
  StepAssignment assignment;
  Program program;
  std::int64_t target_tokens = 0;  // with loss, over all replicas
  // Of all steps of the update that this one belongs to (optimizer.update_every).
  std::int64_t update_target_tokens = 0;
  std::int64_t llm_tokens = 0;
  std::int64_t encoder_tokens = 0;
  Timeline predicted;                  // with events where the step is execution.trace_step
  std::optional<MemoryExcess> excess;  // of the plan's limits, where they are not proven
  std::string digest;                  // digest()
};

// The work of the step's global batch.
std::vector<SampleWork> work_of_step(const RunSetup& setup, std::int64_t step);
// The costs of the step's global batch, without assigning it.
StepCosts costs_of_step(const RunSetup& setup, std::int64_t step);

// Pure function of (setup, step): the global batch, its assignment and its program, validated, the
// plan's memory limits too if `prove_limits`.
PreparedStep prepare_step(const RunSetup& setup, std::int64_t step, bool prove_limits = true);

// Samples of one validation.
int num_validated(const RunSetup& setup);
// Validation batches: consecutive samples in index order, policy `sequential`; a remainder too
// small to give every replica one sample joins the previous batch. None if there are fewer samples
// than replicas.
std::vector<PreparedStep> prepare_validation(const RunSetup& setup);

// A short text that differs whenever two ranks would run a step differently: 32 hexadecimal
// digits over the step's number, its samples, their placement, the order of operations of every
// lane and the number of target tokens; equal on every machine.
//
// Cost  O(operations).
std::string digest(const PreparedStep& step);

}  // namespace entrain::engine
