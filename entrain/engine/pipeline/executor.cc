#include "entrain/engine/pipeline/executor.h"

#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/runnable.h"

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/comm/recorded_comm.h"
#include "entrain/engine/comm/torch_errors.h"
#include "entrain/engine/models/tensor_group.h"
#include "entrain/engine/pipeline/gradients.h"
#include "entrain/engine/pipeline/lane_run.h"
#include "entrain/engine/pipeline/lane_stages.h"
#include "entrain/engine/pipeline/lane_weights.h"
#include "entrain/engine/pipeline/paced_compute.h"
#include "entrain/engine/pipeline/real_compute.h"

namespace entrain::engine {
namespace {

constexpr std::size_t kLastOperations = 16;  // in the message of a failure

// Refuses what this engine cannot run. All ranks check the whole program, so all refuse alike.
void check_program(const Program& program, const Plan& plan) {
  ENTRAIN_INVARIANT(
      program.lanes == plan.lanes && static_cast<int>(program.replicas.size()) == plan.replicas,
      "the step's program was made for another plan");
  for (const ReplicaProgram& replica : program.replicas) {
    for (const std::vector<Operation>& lane : replica.lanes) {
      for (const Operation& operation : lane) {
        if (!engine_runs(operation.kind)) {
          throw InvalidInput(concat("schedule '",
                                    program.schedule,
                                    "' needs ",
                                    name_of(operation.kind),
                                    ", which this engine does not run"));
        }
      }
    }
  }
}

void check_inputs(const StepInputs& inputs, const Plan& plan) {
  ENTRAIN_INVARIANT(
      inputs.program != nullptr && inputs.costs != nullptr && inputs.sample_ids != nullptr,
      "a step without program, costs or sample ids");
  ENTRAIN_INVARIANT(inputs.target_tokens >= 1,
                    concat("a step of ", inputs.target_tokens, " target tokens"));
  ENTRAIN_INVARIANT(inputs.computes || (inputs.ends_update && !inputs.begins_update),
                    "a step without forward and backward is an update of earlier ones' gradients");
  check_program(*inputs.program, plan);
}

}  // namespace

struct Executor::State {
  State(const ModelSpec& model_spec,
        const Plan& run_plan,
        Comm& communicator,
        const ExecutorOptions& executor_options)
      : model(model_spec),
        plan(run_plan),
        options(executor_options),
        places(plan),
        place(places.place_of(communicator.rank())),
        group{&communicator, places.of_lane(place.replica, place.lane), place.tensor_rank},
        stages(options.paced ? LaneStages() : LaneStages(model, plan, place.lane, stage_options())),
        weights(stages.parameters(), options.stage.dtype, num_shards(), shard(), buckets()),
        gradients(stages.parameters(), num_shards(), shard(), place.tensor_rank, buckets()),
        context{model, plan, options, communicator, places, place} {
    options.record_events = options.record_events && place.tensor_rank == 0;
    if (options.log == nullptr) {
      options.log = &own_log.emplace(communicator.rank(), communicator.size(), "");
    }
    if (options.paced) {
      compute = std::make_unique<PacedCompute>(context);
    } else {
      compute = std::make_unique<RealCompute>(context, stages, weights, gradients, group);
    }
    if (options.decorate) {
      compute = options.decorate(std::move(compute));
    }
  }

  // Where to cut the gradients into buckets, whose reductions may start separately.
  [[nodiscard]] std::vector<std::size_t> buckets() const {
    return num_shards() == 1
               ? std::vector<std::size_t>{0}
               : bucket_begins(stages.parameters(), stages.stage_begins(), kReduceBuckets);
  }

  // Weights are drawn in at least float32; LaneWeights rounds them to the compute precision.
  [[nodiscard]] StageOptions stage_options() const {
    StageOptions stage = options.stage;
    stage.dtype = at::promoteTypes(stage.dtype, at::kFloat);
    stage.tensor_parallel = group.size();
    if (group.size() > 1) {
      stage.tensor_group = std::make_shared<const TensorGroup>(group);
    }
    return stage;
  }

  [[nodiscard]] at::Tensor part_of_whole(const at::Tensor& whole,
                                         const ParameterSplit& split) const {
    return part_of(whole, split, group.index, group.size());
  }

  [[nodiscard]] int num_shards() const { return plan.shard_optimizer ? plan.replicas : 1; }
  [[nodiscard]] int shard() const { return plan.shard_optimizer ? place.replica : 0; }

  // The failure of a run with its context; stops all ranks.
  std::string fail(const LaneRun& run, const std::exception& error) {
    const bool is_input = dynamic_cast<const InvalidInput*>(&error) != nullptr;  // a sample
    const std::string before = is_input ? "" : options.log->last_operations(kLastOperations);
    std::string message = run.where() + ": " + message_of(error);
    if (!before.empty()) {
      message += "\nlast operations: " + before;
    }
    note_failure(*options.log, error, message);
    context.comm.abort(message);
    return message;
  }

  ModelSpec model;
  Plan plan;
  ExecutorOptions options;
  std::optional<CallLog> own_log;
  RankPlaces places;
  RankPlace place;
  TensorGroup group;  // of the lane
  LaneStages stages;
  LaneWeights weights;
  LaneGradients gradients;
  LaneContext context;
  std::unique_ptr<LaneCompute> compute;
};

Executor::Executor(const ModelSpec& model,
                   const Plan& plan,
                   Comm& comm,
                   const ExecutorOptions& options) {
  check_runnable(plan, model, "plan");
  const int num_ranks = RankPlaces(plan).num_ranks();
  ENTRAIN_INVARIANT(comm.size() == num_ranks,
                    concat(comm.size(), " ranks for a plan of ", num_ranks));
  state_ = std::make_unique<State>(model, plan, comm, options);
}

Executor::~Executor() = default;

StepOutcome Executor::run(const StepInputs& inputs,
                          const std::function<void()>& optimizer_step,
                          RunMode mode) {
  check_inputs(inputs, state_->plan);
  LaneRun run(state_->context, *state_->compute, inputs, mode);
  try {
    return run.run(optimizer_step);
  } catch (const CommAborted&) {
    throw;
  } catch (const InvalidInput& error) {
    throw InvalidInput(state_->fail(run, error));
  } catch (const SystemFailure& error) {
    throw SystemFailure(state_->fail(run, error));
  } catch (const InternalError& error) {
    throw InternalError(state_->fail(run, error));
  } catch (const c10::Error& error) {
    throw SystemFailure(state_->fail(run, error));
  } catch (const std::bad_alloc& error) {
    throw SystemFailure(state_->fail(run, error));
  } catch (const std::exception& error) {
    throw InternalError(state_->fail(run, error));
  }
}

void Executor::scale_gradients(double factor) {
  state_->compute->scale_gradients(factor);
}

double Executor::evaluate(const StepInputs& inputs) {
  return run(inputs, {}, RunMode::kEvaluate).loss_sum;
}

std::vector<NamedParameter> Executor::parameters() const {
  return state_->stages.parameters();
}

std::vector<TrainedPiece> Executor::trained() const {
  const at::NoGradGuard no_grad;
  const at::Tensor& gradients = state_->gradients.buffer();
  std::map<std::string, std::string> part_of;
  for (std::size_t i = 0; i < state_->stages.parts().size(); ++i) {
    part_of[state_->stages.parameters()[i].name] = state_->stages.parts()[i];
  }
  std::vector<TrainedPiece> trained;
  for (const ShardPiece& piece : layout().pieces(state_->shard())) {
    trained.push_back({piece.entry->name,
                       part_of.at(piece.entry->name),
                       piece.entry->shape.size() >= 2,
                       piece.begin,
                       state_->weights.master(piece),
                       gradients.narrow(0, piece.place, piece.size)});
  }
  return trained;
}

const FlatLayout& Executor::layout() const {
  return state_->weights.layout();
}

StateBytes Executor::held_bytes() const {
  StateBytes held;
  held.parameter_bytes = state_->weights.parameter_bytes();
  held.optimizer_bytes = state_->weights.master_bytes();
  const at::Tensor& gradients = state_->gradients.buffer();
  held.gradient_bytes = gradients.defined() ? static_cast<std::int64_t>(gradients.nbytes()) : 0;
  return held;
}

std::vector<NamedParameter> Executor::weights() const {
  const LaneContext& lane = state_->context;
  return whole_parameters(state_->weights.full(lane.comm, lane.across_replicas()), state_->group);
}

void Executor::set_weights(const std::vector<NamedParameter>& values) {
  const std::vector<NamedParameter>& parameters = state_->stages.parameters();
  ENTRAIN_INVARIANT(values.size() == parameters.size(),
                    concat(values.size(), " weights for a lane that has ", parameters.size()));
  std::vector<NamedParameter> parts;
  for (std::size_t i = 0; i < values.size(); ++i) {
    parts.push_back({values[i].name, state_->part_of_whole(values[i].tensor, parameters[i].split)});
  }
  state_->weights.set(parts);
}

std::vector<NamedParameter> Executor::whole(const at::Tensor& own, std::string_view suffix) const {
  const LaneContext& lane = state_->context;
  const at::Tensor flat = state_->weights.whole(own, lane.comm, lane.across_replicas());
  return whole_parameters(layout().views(flat, suffix), state_->group);
}

void Executor::take(const std::vector<NamedParameter>& whole, const at::Tensor& own) const {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = at::zeros({layout().size()}, own.options());
  const std::vector<NamedParameter> views = layout().views(flat);
  ENTRAIN_INVARIANT(whole.size() == views.size(),
                    concat(whole.size(), " tensors for ", views.size(), " trained parameters"));
  for (std::size_t i = 0; i < views.size(); ++i) {
    views[i].tensor.copy_(state_->part_of_whole(whole[i].tensor, views[i].split));
  }
  state_->weights.take_shard(flat, own);
}

}  // namespace entrain::engine
