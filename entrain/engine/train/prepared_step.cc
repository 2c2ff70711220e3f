#include "entrain/engine/train/prepared_step.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/text.h"
#include "entrain/core/step/step.h"

namespace entrain::engine {
namespace {

void append(std::string& bytes, std::int64_t value) {
  for (unsigned shift = 0; shift < 64; shift += 8) {
    bytes.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> shift & 0xffU));
  }
}

void append(std::string& bytes, const ReplicaProgram& replica) {
  for (const std::vector<Operation>& lane : replica.lanes) {
    append(bytes, std::ssize(lane));
    for (const Operation& operation : lane) {
      append(bytes, static_cast<std::int64_t>(operation.kind));
      append(bytes, operation.unit.module);
      append(bytes, operation.unit.stage);
      append(bytes, operation.unit.slot);
      append(bytes, operation.unit.group);
      append(bytes, operation.channel);
    }
  }
}

// The costs of a step whose gradients are part of a later step's update: it neither sums
// them over replicas nor runs the optimizer.
void leave_out_update(StepCosts& costs) {
  for (ModuleCosts& module : costs.modules) {
    for (StageCosts& stage : module.stages) {
      stage.reduce = {};
      stage.optimizer = {};
    }
  }
}

bool ends_update(const RunSetup& setup, std::int64_t step) {
  return (step + 1) % setup.config.optimizer.update_every == 0;
}

void fill_step(const RunSetup& setup,
               const DataSet& data,
               const std::string& policy,
               bool updates,
               const StepOptions& options,
               PreparedStep& prepared) {
  std::vector<SampleWork> work;
  std::vector<std::string> ids;
  for (const int sample : prepared.batch) {
    work.push_back(data.work[static_cast<std::size_t>(sample)]);
    ids.push_back(data.index.samples[static_cast<std::size_t>(sample)].id);
    prepared.target_tokens += work.back().target_tokens;
    prepared.llm_tokens += work.back().llm_tokens;
    for (const auto& segments : work.back().segments) {
      for (const SegmentWork& segment : segments) {
        prepared.encoder_tokens += segment.tokens;
      }
    }
  }
  prepared.sample_ids = unique_names(std::move(ids));
  prepared.update_target_tokens = prepared.target_tokens;
  prepared.costs = step_costs(setup.model, setup.plan, setup.profile, work);
  if (!setup.config.execution.overlap_reduction) {
    prepared.costs.reduce_buckets = 0;
  }
  if (!updates) {
    leave_out_update(prepared.costs);
  }
  AssignRequest request;
  request.plan = &setup.plan;
  request.costs = &prepared.costs;
  request.step = prepared.step;
  request.seed = setup.config.seed;
  request.threads = setup.config.plan.assign_threads;
  request.options = entrain_options_without(setup.config.plan.without, "plan.without");
  SimulatedStep simulated = simulate_step(policy, request, options);
  prepared.assignment = std::move(simulated.assignment);
  prepared.program = std::move(simulated.program);
  prepared.predicted = std::move(simulated.timeline);
  prepared.excess = std::move(simulated.excess);
  prepared.digest = digest(prepared);
}

}  // namespace

std::vector<SampleWork> work_of_step(const RunSetup& setup, std::int64_t step) {
  std::vector<SampleWork> work;
  for (const int sample : batches_of(setup).batch(step)) {
    work.push_back(setup.train.work[static_cast<std::size_t>(sample)]);
  }
  return work;
}

int num_validated(const RunSetup& setup) {
  return std::min(static_cast<int>(setup.validation.index.samples.size()),
                  setup.config.validation.samples);
}

StepCosts costs_of_step(const RunSetup& setup, std::int64_t step) {
  return step_costs(setup.model, setup.plan, setup.profile, work_of_step(setup, step));
}

PreparedStep prepare_step(const RunSetup& setup, std::int64_t step, bool prove_limits) {
  PreparedStep prepared;
  prepared.step = step;
  prepared.batch = batches_of(setup).batch(step);
  const bool traced = step == setup.config.execution.trace_step;
  fill_step(setup,
            setup.train,
            setup.plan.policy,
            ends_update(setup, step),
            {.prove_limits = prove_limits, .events = traced, .bound = true},
            prepared);
  const int every = setup.config.optimizer.update_every;
  for (std::int64_t other = step - step % every; other < step - step % every + every; ++other) {
    if (other != step) {
      for (const SampleWork& work : work_of_step(setup, other)) {
        prepared.update_target_tokens += work.target_tokens;
      }
    }
  }
  return prepared;
}

std::vector<PreparedStep> prepare_validation(const RunSetup& setup) {
  std::vector<PreparedStep> steps;
  const int wanted = num_validated(setup);
  const int per_step = std::max(setup.config.data.global_batch, setup.plan.replicas);
  if (wanted < setup.plan.replicas) {
    return steps;
  }
  for (int begin = 0; begin < wanted;) {
    const int size = std::min(per_step, wanted - begin);
    const int left = wanted - begin - size;
    PreparedStep prepared;
    prepared.step = static_cast<std::int64_t>(steps.size());
    // A remainder too small to give every replica one sample joins the previous step.
    prepared.batch.resize(
        static_cast<std::size_t>(left < setup.plan.replicas ? size + left : size));
    std::iota(prepared.batch.begin(), prepared.batch.end(), begin);
    begin += static_cast<int>(prepared.batch.size());
    fill_step(setup, setup.validation, "sequential", /*updates=*/false, {}, prepared);
    steps.push_back(std::move(prepared));
  }
  return steps;
}

std::string digest(const PreparedStep& step) {
  std::string bytes = digest(step.assignment);
  append(bytes, step.step);
  append(bytes, step.target_tokens);
  for (const std::string& id : step.sample_ids) {
    bytes.append(id).push_back('\0');
  }
  for (const ReplicaProgram& replica : step.program.replicas) {
    append(bytes, replica);
  }
  return digest_of(bytes);
}

}  // namespace entrain::engine
