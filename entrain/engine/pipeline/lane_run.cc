#include "entrain/engine/pipeline/lane_run.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include <c10/core/GradMode.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/pipeline/pacing.h"

namespace entrain::engine {
namespace {

constexpr std::size_t kSamplesInMessage = 16;

}  // namespace

LaneRun::LaneRun(LaneContext& lane, const StepInputs& inputs, RunMode mode)
    : lane_(lane),
      inputs_(inputs),
      mode_(mode),
      sizes_{lane.model, *inputs.program, *inputs.costs},
      program_(inputs.program->replicas.at(at(lane.replica))),
      operations_(program_.lanes.at(at(lane.lane))),
      features_(sizes_, lane.replica),
      chunks_(sizes_),
      recorder_(lane.replica, lane.lane, lane.options, inputs.start, outcome_),
      end_(lane, inputs, recorder_, outcome_) {
  if (mode == RunMode::kTrain && inputs.step == lane.options.drill.step) {
    drill_position_ = drill_position(lane.options.drill, operations_);
  }
}

StepOutcome LaneRun::run(const std::function<void()>& optimizer_step) {
  lane_.tied.share(lane_.comm);
  if (mode_ == RunMode::kTrain) {
    recorder_.begin_memory();
    end_.begin_step();
  }
  for (position_ = 0; position_ < static_cast<int>(operations_.size()); ++position_) {
    const Operation& operation = operations_[at(position_)];
    if (!is_skipped(operation)) {
      const LoggedScope scope(lane_.options.log, logged(operation));
      if (position_ == drill_position_) {
        misbehave_before(lane_.options.drill, operation);
      }
      run_operation(operation, optimizer_step);
      if (operation.unit.module >= 0) {  // what the step does once more is not activations
        recorder_.note_memory();
      }
    }
  }
  ENTRAIN_INVARIANT(outputs_.empty() && gradients_.empty() && features_.empty() &&
                        graphs_.empty() && waiting_.empty() && chunks_.empty(),
                    "tensors are left over at the end of the step");
  read_losses();
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

bool LaneRun::drills(FaultKind kind) const {
  return position_ == drill_position_ && lane_.options.drill.kind == kind;
}

// An evaluation leaves out all that belongs to gradients, a step whose update is yet to come what
// makes it, and one that only makes it all else.
bool LaneRun::is_skipped(const Operation& operation) const {
  if (mode_ == RunMode::kTrain) {
    return operation.unit.module < 0 ? !inputs_.ends_update : !inputs_.computes;
  }
  const bool message =
      operation.kind == OperationKind::kSend || operation.kind == OperationKind::kReceive;
  return message ? channel(operation).gradient : operation.kind != OperationKind::kForward;
}

void LaneRun::run_operation(const Operation& operation,
                            const std::function<void()>& optimizer_step) {
  switch (operation.kind) {
    case OperationKind::kForward:
      return forward(operation);
    case OperationKind::kBackward:
    case OperationKind::kBackwardInput:
      return backward(operation);
    case OperationKind::kBackwardWeight:
      return backward_weight(operation);
    case OperationKind::kSend:
      return send(operation);
    case OperationKind::kReceive:
      return receive(operation);
    case OperationKind::kClipNorm:
      read_losses();  // where all ranks say whether theirs are numbers
      [[fallthrough]];
    default:
      return end_.run(operation.kind, position_, optimizer_step);
  }
}

// All at once, in the order of the groups: a device is waited for once a step.
void LaneRun::read_losses() {
  if (losses_.empty()) {
    return;
  }
  const at::Tensor losses = at::stack(losses_).to(at::kCPU, at::kDouble);
  losses_.clear();
  for (std::int64_t i = 0; i < losses.size(0); ++i) {
    outcome_.loss_sum += losses.const_data_ptr<double>()[i];
  }
}

void LaneRun::forward(const Operation& operation) {
  const UnitKey& unit = operation.unit;
  const Group& items = group(unit);
  const bool with_graph = takes_backward(items, unit.stage);
  const Clock::time_point asked = Clock::now();
  UnitInput input = take_input(unit, items, with_graph);
  recorder_.wait(position_, asked);
  const Clock::time_point start = recorder_.begin_compute();
  compute_forward(unit, items, input, with_graph);
  recorder_.end_compute(position_, start);
}

// Waits for all that the forward reads. Its leaves require gradients where one goes upstream.
UnitInput LaneRun::take_input(const UnitKey& unit, const Group& items, bool with_graph) {
  UnitInput input;
  if (unit.stage > 0) {
    input.hidden = take(outputs_, {unit.module, unit.stage - 1, unit.slot, unit.group}).detach();
    input.hidden.set_requires_grad(with_graph && takes_backward(items, unit.stage - 1));
  } else if (is_first_llm_stage(unit)) {
    input.features =
        features_.take({unit.slot, unit.group}, with_graph, [&](const UnitKey& producer) {
          return take(outputs_, producer);
        });
  }
  if (lane_.options.paced) {
    for (FeaturePart& part : input.features) {
      if (part.leaf.requires_grad()) {
        part.leaf.mutable_grad() = at::empty_like(part.leaf.detach());
      }
    }
  } else {
    read_data(sizes_, *inputs_.sample_ids, unit, items, *inputs_.data, input);
    if (unit.module == inputs_.program->llm_module()) {
      input.items = chunks_.items_of(unit.stage, items, with_graph);
    }
  }
  return input;
}

void LaneRun::compute_forward(const UnitKey& unit,
                              const Group& items,
                              UnitInput& input,
                              bool with_graph) {
  Graph graph;
  if (input.hidden.defined() && input.hidden.requires_grad()) {
    graph.input = input.hidden;
  }
  if (lane_.options.paced) {
    wait_until(Clock::now() + operation_time(*inputs_.costs, OperationKind::kForward, unit, items));
    graph.output = paced_tensor(unit, items);
  } else {
    const c10::AutoGradMode grad_mode(with_graph);
    if (with_graph) {
      graph.weight_gradients = c10::make_intrusive<WeightGradients>();
    }
    const WeightGradientsScope scope(graph.weight_gradients);
    UnitOutput output = run_forward(
        sizes_, lane_.stages, lane_.options.stage, unit, items, input, inputs_.target_tokens);
    if (drills(FaultKind::kNan)) {
      output.tensor = output.tensor * std::numeric_limits<float>::quiet_NaN();
      if (output.loss_sum.defined()) {
        output.loss_sum = output.loss_sum * std::numeric_limits<float>::quiet_NaN();
      }
    }
    if (output.loss_sum.defined() && lane_.group.index == 0) {
      losses_.push_back(std::move(output.loss_sum));
    }
    graph.output = std::move(output.tensor);
    // A chunk may take part for the sake of features that turn out to stand in a later one.
    ENTRAIN_INVARIANT(!with_graph || graph.output.requires_grad() || has_chunks(items),
                      "a group takes part in backward, but nothing in its graph is trainable");
    if (unit.module == inputs_.program->llm_module()) {
      chunks_.after_forward(unit.stage, items);
    }
  }
  if (!is_last_llm_stage(unit)) {
    outputs_.put(unit, graph.output.detach());
    if (with_graph) {
      graph.output.set_data(at::empty({0}, graph.output.options().requires_grad(false)));
    }
  }
  if (with_graph) {
    graphs_.emplace(unit, std::move(graph));
  }
}

// A whole backward or its input half.
void LaneRun::backward(const Operation& operation) {
  const UnitKey& unit = operation.unit;
  const Group& items = group(unit);
  const auto found = graphs_.find(unit);
  ENTRAIN_INVARIANT(found != graphs_.end(), "backward without a forward that recorded its graph");
  const bool split = operation.kind == OperationKind::kBackwardInput;
  const Clock::time_point asked = Clock::now();
  at::Tensor gradient;
  if (!is_last_llm_stage(unit)) {
    gradient = take(gradients_, unit);
  }
  recorder_.wait(position_, asked);
  const Clock::time_point start = recorder_.begin_compute();
  if (lane_.options.paced) {
    wait_until(start + operation_time(*inputs_.costs, operation.kind, unit, items));
  } else {
    run_backward(found->second, gradient, split);
    if (unit.module == inputs_.program->llm_module()) {
      chunks_.after_backward(unit.stage, items);
    }
  }
  if (split) {
    waiting_.emplace(unit, std::move(found->second.weight_gradients));
  }
  const at::Tensor input = found->second.input;
  graphs_.erase(found);
  give_gradients(unit, items, input);
  recorder_.end_compute(position_, start);
  end_.made_gradients(position_, start);
}

void LaneRun::run_backward(Graph& graph, const at::Tensor& gradient, bool split) {
  const int stage = lane_.overlap != nullptr ? end_.last_for_stage(position_) : -1;
  if (split) {
    graph.weight_gradients->defer();
  }
  if (stage >= 0) {
    lane_.overlap->begin_last(at(stage));
  }
  if (graph.output.requires_grad()) {
    graph.output.backward(gradient);
  }
  if (stage >= 0) {
    lane_.overlap->end_last(at(stage));
  }
}

void LaneRun::backward_weight(const Operation& operation) {
  const UnitKey& unit = operation.unit;
  const auto found = waiting_.find(unit);
  ENTRAIN_INVARIANT(found != waiting_.end(), "a weight half before its input half");
  const Clock::time_point start = recorder_.begin_compute();
  if (lane_.options.paced) {
    wait_until(start + operation_time(*inputs_.costs, operation.kind, unit, group(unit)));
  } else if (const int stage = end_.last_for_stage(position_);
             lane_.overlap != nullptr && stage >= 0) {
    lane_.overlap->begin_last(at(stage), *found->second);
    found->second->run([&](const at::Tensor& parameter) { lane_.overlap->added(parameter); });
    lane_.overlap->end_last(at(stage));
  } else {
    found->second->run();
  }
  waiting_.erase(found);
  recorder_.end_compute(position_, start);
  end_.made_gradients(position_, start);
}

// Hands on what backward left at the leaves.
void LaneRun::give_gradients(const UnitKey& unit, const Group& items, const at::Tensor& input) {
  if (unit.stage > 0 && takes_backward(items, unit.stage - 1)) {
    const UnitKey producer{unit.module, unit.stage - 1, unit.slot, unit.group};
    at::Tensor gradient = lane_.options.paced ? paced_tensor(producer, items) : input.grad();
    gradients_.put(producer,
                   gradient.defined() ? std::move(gradient) : at::zeros_like(input.detach()));
  } else if (is_first_llm_stage(unit)) {
    features_.give({unit.slot, unit.group}, [&](const UnitKey& producer, at::Tensor gradient) {
      gradients_.put(producer, std::move(gradient));
    });
  }
}

void LaneRun::send(const Operation& operation) {
  const Clock::time_point start = Clock::now();
  UnitTensors& tensors = channel(operation).gradient ? gradients_ : outputs_;
  at::Tensor message = take(tensors, operation.unit);
  if (drills(FaultKind::kWrongSize)) {
    message = at::cat({message, message.narrow(0, 0, 1)});
  }
  const std::vector<int> receivers =
      lane_.places.receivers_of(place(), channel(operation).target_lane);
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
  const int sender = lane_.places.sender_of(place(), channel(operation).source_lane);
  (gradient ? gradients_ : outputs_)
      .post(operation.unit,
            lane_.comm.post_receive({sender, lane_.comm.rank(), operation.channel},
                                    tag(operation),
                                    shape,
                                    message_options()),
            position_);
  if (!gradient) {
    recorder_.bytes_come(shape[0] * shape[1] *
                         static_cast<std::int64_t>(at::elementSize(lane_.options.stage.dtype)));
  }
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

bool LaneRun::is_last_llm_stage(const UnitKey& unit) const {
  return unit.module == inputs_.program->llm_module() &&
         unit.stage + 1 == inputs_.program->num_stages.back();
}

bool LaneRun::takes_backward(const Group& items, int stage) const {
  return mode_ == RunMode::kTrain && items.takes_backward.at(at(stage)) != 0;
}

// A tensor of the right shape that nobody fills.
at::Tensor LaneRun::paced_tensor(const UnitKey& unit, const Group& items) const {
  return at::empty(output_shape(sizes_, unit, items), message_options());
}

at::TensorOptions LaneRun::message_options() const {
  return at::TensorOptions(lane_.options.stage.dtype).device(lane_.options.stage.device);
}

const Group& LaneRun::group(const UnitKey& unit) const {
  return group_of(program_, unit);
}

const Channel& LaneRun::channel(const Operation& operation) const {
  return program_.channels.at(at(operation.channel));
}

RankPlace LaneRun::place() const {
  return {lane_.replica, lane_.lane, lane_.group.index};
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
