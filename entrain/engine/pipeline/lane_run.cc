#include "entrain/engine/pipeline/lane_run.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

using Clock = LaneRecorder::Clock;

constexpr std::size_t kSamplesInMessage = 16;

// The last operation of each of the lane's stages that adds to weight gradients; -1: none does.
std::vector<int> last_of_stages(const std::vector<Operation>& operations,
                                const std::vector<StageRef>& stages) {
  std::vector<int> last(stages.size(), -1);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const Operation& operation = operations[i];
    if (operation.kind == OperationKind::kBackward ||
        operation.kind == OperationKind::kBackwardWeight) {
      const StageRef ref{operation.unit.module, operation.unit.stage};
      const auto stage = std::find(stages.begin(), stages.end(), ref);
      last.at(at(static_cast<int>(stage - stages.begin()))) = static_cast<int>(i);
    }
  }
  return last;
}

}  // namespace

LaneRun::LaneRun(const LaneContext& lane,
                 LaneCompute& compute,
                 const StepInputs& inputs,
                 RunMode mode)
    : lane_(lane),
      compute_(compute),
      inputs_(inputs),
      mode_(mode),
      sizes_{lane.model, *inputs.program, *inputs.costs},
      program_(inputs.program->replicas.at(at(lane.place.replica))),
      operations_(program_.lanes.at(at(lane.place.lane))),
      last_of_stage_(last_of_stages(operations_, inputs.program->lanes.at(at(lane.place.lane)))),
      features_(sizes_, lane.place.replica),
      recorder_(lane.place, lane.options, compute.device(), inputs.start, outcome_) {}

StepOutcome LaneRun::run(const std::function<void()>& optimizer_step) {
  compute_.begin_step(inputs_, mode_);
  if (mode_ == RunMode::kTrain) {
    recorder_.begin_memory();
  }
  for (position_ = 0; position_ < static_cast<int>(operations_.size()); ++position_) {
    const Operation& operation = operations_[at(position_)];
    if (is_skipped(operation)) {
      continue;
    }
    const LoggedScope scope(lane_.options.log, logged(operation));
    switch (operation.kind) {
      case OperationKind::kForward:
        forward(operation);
        break;
      case OperationKind::kBackward:
      case OperationKind::kBackwardInput:
        backward(operation);
        break;
      case OperationKind::kBackwardWeight:
        backward_weight(operation);
        break;
      case OperationKind::kSend:
        send(operation);
        break;
      case OperationKind::kReceive:
        receive(operation);
        break;
      case OperationKind::kReduceGradients:
        reduce_gradients();
        break;
      case OperationKind::kClipNorm:
        clip_gradients();
        break;
      case OperationKind::kOptimizerStep:
        step_optimizer(optimizer_step);
        break;
      case OperationKind::kGatherParameters:
        gather_parameters();
        break;
      default:
        ENTRAIN_INVARIANT(false, concat("cannot run ", name_of(operation.kind)));
    }
    if (operation.unit.module >= 0) {  // step-wide operations hold no activations
      recorder_.note_memory();
    }
  }
  ENTRAIN_INVARIANT(outputs_.empty() && gradients_.empty() && features_.empty(),
                    "tensors are left over at the end of the step");
  outcome_.loss_sum += compute_.take_losses();
  compute_.end_step();
  recorder_.end_memory();
  recorder_.finish();
  return std::move(outcome_);
}

LoggedCall LaneRun::logged(const Operation& operation) const {
  LoggedCall call;
  if (lane_.options.log != nullptr) {
    call.step = inputs_.step;
    call.what = to_string(*inputs_.program, operation);
  }
  return call;
}

// An evaluation skips all gradient operations; a step without an update skips the update's
// operations; a step that only updates skips all others.
bool LaneRun::is_skipped(const Operation& operation) const {
  if (mode_ == RunMode::kTrain) {
    return operation.unit.module < 0 ? !inputs_.ends_update : !inputs_.computes;
  }
  const bool message =
      operation.kind == OperationKind::kSend || operation.kind == OperationKind::kReceive;
  return message ? channel(operation).gradient : operation.kind != OperationKind::kForward;
}

void LaneRun::forward(const Operation& operation) {
  const UnitWork work = work_of(operation);
  const Clock::time_point asked = Clock::now();
  UnitInput input = take_input(work);
  recorder_.wait(position_, asked);
  const Clock::time_point start = recorder_.begin_compute();
  at::Tensor output = compute_.forward(work, input);
  if (output.defined()) {
    outputs_.put(operation.unit, std::move(output));
  }
  recorder_.end_compute(position_, start);
}

// Waits for all inputs of the forward. Its leaves require gradients if one is sent upstream.
UnitInput LaneRun::take_input(const UnitWork& work) {
  const UnitKey& unit = work.unit;
  UnitInput input;
  if (unit.stage > 0) {
    input.hidden = take(outputs_, {unit.module, unit.stage - 1, unit.slot, unit.group}).detach();
    input.hidden.set_requires_grad(work.with_graph && takes_backward(work.group, unit.stage - 1));
  } else if (is_first_llm_stage(unit)) {
    input.features =
        features_.take({unit.slot, unit.group}, work.with_graph, [&](const UnitKey& producer) {
          return take(outputs_, producer);
        });
  }
  compute_.read(work, input);
  return input;
}

// A whole backward or its input half; passes on the gradients of its leaves.
void LaneRun::backward(const Operation& operation) {
  const UnitWork work = work_of(operation);
  const UnitKey& unit = work.unit;
  const Clock::time_point asked = Clock::now();
  at::Tensor gradient;
  if (!is_last_llm_stage(*inputs_.program, unit)) {
    gradient = take(gradients_, unit);
  }
  recorder_.wait(position_, asked);
  const Clock::time_point start = recorder_.begin_compute();
  at::Tensor before =
      compute_.backward(work, gradient, operation.kind == OperationKind::kBackwardInput);
  if (before.defined()) {
    gradients_.put({unit.module, unit.stage - 1, unit.slot, unit.group}, std::move(before));
  } else if (is_first_llm_stage(unit)) {
    features_.give({unit.slot, unit.group}, [&](const UnitKey& producer, at::Tensor of) {
      gradients_.put(producer, std::move(of));
    });
  }
  recorder_.end_compute(position_, start);
  compute_.note_end(work, start);
}

void LaneRun::backward_weight(const Operation& operation) {
  const UnitWork work = work_of(operation);
  const Clock::time_point start = recorder_.begin_compute();
  compute_.backward_weight(work);
  recorder_.end_compute(position_, start);
  compute_.note_end(work, start);
}

void LaneRun::send(const Operation& operation) {
  const Clock::time_point start = Clock::now();
  UnitTensors& tensors = channel(operation).gradient ? gradients_ : outputs_;
  at::Tensor message = take(tensors, operation.unit);
  const std::vector<int> receivers =
      lane_.places.receivers_of(lane_.place, channel(operation).target_lane);
  for (std::size_t i = receivers.size(); i-- > 0;) {
    at::Tensor sent = i > 0 ? message.clone() : std::move(message);  // each frees its own
    recorder_.bytes_go(static_cast<std::int64_t>(sent.nbytes()));
    lane_.comm.send(
        {lane_.comm.rank(), receivers[i], operation.channel}, tag(operation), std::move(sent));
  }
  recorder_.event(EventCategory::kSend, position_, start);
}

void LaneRun::receive(const Operation& operation) {
  const bool gradient = channel(operation).gradient;
  const std::vector<std::int64_t> shape =
      output_shape(sizes_, operation.unit, group(operation.unit));
  const int sender = lane_.places.sender_of(lane_.place, channel(operation).source_lane);
  (gradient ? gradients_ : outputs_)
      .post(operation.unit,
            lane_.comm.post_receive({sender, lane_.comm.rank(), operation.channel},
                                    tag(operation),
                                    shape,
                                    lane_.options.message_options()),
            position_);
  if (!gradient) {
    recorder_.bytes_come(shape[0] * shape[1] *
                         static_cast<std::int64_t>(at::elementSize(lane_.options.stage.dtype)));
  }
}

void LaneRun::reduce_gradients() {
  compute_.join_gradients();
  const Clock::time_point asked = Clock::now();
  lane_.comm.barrier(lane_.across_replicas());
  recorder_.wait(position_, asked);
  const Clock::time_point start = Clock::now();
  const auto beside = compute_.reduce_gradients();
  if (!beside.has_value()) {
    return recorder_.event(EventCategory::kCompute, position_, start);
  }
  for (const LaneCompute::Span& span : *beside) {
    recorder_.event(EventCategory::kSend, position_, span.start, span.finish);
  }
  recorder_.wait(position_, start);
}

void LaneRun::clip_gradients() {
  outcome_.loss_sum += compute_.take_losses();  // all ranks exchange whether theirs are finite
  compute_.join_gradients();
  const Clock::time_point asked = Clock::now();
  outcome_.gradient_norm = compute_.clip_gradients();
  // The all-reduce of one flag, which is also the barrier before any rank updates.
  const bool number = std::isfinite(outcome_.loss_sum) && std::isfinite(outcome_.gradient_norm);
  at::Tensor without = at::full({1}, number ? 0.0 : 1.0, at::TensorOptions().dtype(at::kDouble));
  lane_.comm.all_reduce_sum(without, lane_.places.all());
  outcome_.finite = without.item<double>() == 0;
  recorder_.wait(position_, asked);
}

void LaneRun::step_optimizer(const std::function<void()>& optimizer_step) {
  const Clock::time_point start = Clock::now();
  compute_.step_optimizer(outcome_.finite ? optimizer_step : std::function<void()>());
  recorder_.event(EventCategory::kCompute, position_, start);
}

// After the optimizer's step of all replicas.
void LaneRun::gather_parameters() {
  const Clock::time_point start = Clock::now();
  compute_.gather_parameters();
  recorder_.event(EventCategory::kCompute, position_, start);
}

at::Tensor LaneRun::take(UnitTensors& tensors, const UnitKey& unit) {
  const Clock::time_point start = Clock::now();
  UnitTensors::Taken taken = tensors.take(unit);
  if (taken.receive.has_value()) {
    recorder_.event(EventCategory::kReceive, *taken.receive, start);
    if (&tensors == &gradients_) {
      recorder_.bytes_come(static_cast<std::int64_t>(taken.tensor.nbytes()));
    }
  }
  return std::move(taken.tensor);
}

bool LaneRun::is_first_llm_stage(const UnitKey& unit) const {
  return unit.module == inputs_.program->llm_module() && unit.stage == 0;
}

UnitWork LaneRun::work_of(const Operation& operation) const {
  const Group& items = group(operation.unit);
  UnitWork work{operation.unit, items, takes_backward(items, operation.unit.stage)};
  const auto stage = std::find(last_of_stage_.begin(), last_of_stage_.end(), position_);
  if (inputs_.ends_update && stage != last_of_stage_.end()) {
    work.last_for_stage = static_cast<int>(stage - last_of_stage_.begin());
  }
  return work;
}

bool LaneRun::takes_backward(const Group& items, int stage) const {
  return mode_ == RunMode::kTrain && items.takes_backward.at(at(stage)) != 0;
}

const Group& LaneRun::group(const UnitKey& unit) const {
  return group_of(program_, unit);
}

const Channel& LaneRun::channel(const Operation& operation) const {
  return program_.channels.at(at(operation.channel));
}

// Step, direction and unit in one number; it only has to differ between messages that a bug could
// confuse.
std::uint64_t LaneRun::tag(const Operation& operation) const {
  const auto part = [](int value, unsigned bits) {
    return static_cast<std::uint64_t>(value) & ((std::uint64_t{1} << bits) - 1);
  };
  const UnitKey& unit = operation.unit;
  std::uint64_t result = static_cast<std::uint64_t>(inputs_.step) & 0xffffU;
  result = result << 1U | (mode_ == RunMode::kTrain ? 0U : 1U);
  result = result << 1U | (channel(operation).gradient ? 1U : 0U);
  result = result << 6U | part(unit.module, 6);
  result = result << 8U | part(unit.stage, 8);
  result = result << 16U | part(unit.slot, 16);
  return result << 16U | part(unit.group, 16);
}

std::string LaneRun::where() const {
  std::string text = concat("rank ",
                            lane_.comm.rank(),
                            " (",
                            lane_.places.name_of(lane_.comm.rank()),
                            "), step ",
                            inputs_.step);
  if (position_ >= static_cast<int>(operations_.size())) {
    return text + ", end of the step";
  }
  const Operation& operation = operations_[at(position_)];
  text += ", " + to_string(*inputs_.program, operation);
  if (operation.unit.module < 0) {
    return text;
  }
  std::vector<std::string> ids;
  std::set<int> seen;
  for (const WorkItem& item : group(operation.unit).items) {
    if (seen.insert(item.sample).second) {
      ids.push_back(inputs_.sample_ids->at(at(item.sample)));
    }
  }
  const std::size_t more = ids.size() - std::min(ids.size(), kSamplesInMessage);
  ids.resize(ids.size() - more);
  text += ", samples " + join(ids);
  return more == 0 ? text : concat(text, " and ", more, " more");
}

}  // namespace entrain::engine
