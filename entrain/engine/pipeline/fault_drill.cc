#include "entrain/engine/pipeline/fault_drill.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <thread>
#include <utility>

#include "entrain/engine/pipeline/ranks.h"

namespace entrain::engine {
namespace {

at::Tensor poisoned(const at::Tensor& tensor) {
  return tensor.defined() ? tensor * std::numeric_limits<float>::quiet_NaN() : tensor;
}

class DrilledCompute : public LaneCompute {
 public:
  DrilledCompute(std::unique_ptr<LaneCompute> inner, RankDrill& drill)
      : inner_(std::move(inner)), drill_(drill) {}

  void begin_step(const StepInputs& inputs, RunMode mode) override {
    drill_.begin_step(inputs, mode);
    poisons_ = false;
    inner_->begin_step(inputs, mode);
  }
  void end_step() override { inner_->end_step(); }
  void read(const UnitWork& work, UnitInput& input) override { inner_->read(work, input); }
  at::Tensor forward(const UnitWork& work, UnitInput& input) override {
    const bool strikes = drill_.strikes(OperationKind::kForward, work.unit);
    const at::Tensor output = inner_->forward(work, input);
    poisons_ = poisons_ || (strikes && drill_.kind() == FaultKind::kNan);
    return strikes && poisons_ ? poisoned(output) : output;
  }
  at::Tensor backward(const UnitWork& work, const at::Tensor& gradient, bool split) override {
    drill_.strikes(split ? OperationKind::kBackwardInput : OperationKind::kBackward, work.unit);
    return inner_->backward(work, gradient, split);
  }
  void backward_weight(const UnitWork& work) override {
    drill_.strikes(OperationKind::kBackwardWeight, work.unit);
    inner_->backward_weight(work);
  }
  void note_end(const UnitWork& work, Clock::time_point start) override {
    inner_->note_end(work, start);
  }
  double take_losses() override {
    const double losses = inner_->take_losses();
    return poisons_ && losses != 0 ? std::numeric_limits<double>::quiet_NaN() : losses;
  }
  void join_gradients() override { inner_->join_gradients(); }
  std::optional<std::vector<Span>> reduce_gradients() override {
    return inner_->reduce_gradients();
  }
  double clip_gradients() override { return inner_->clip_gradients(); }
  void step_optimizer(const std::function<void()>& step) override { inner_->step_optimizer(step); }
  void gather_parameters() override { inner_->gather_parameters(); }
  void scale_gradients(double factor) override { inner_->scale_gradients(factor); }
  [[nodiscard]] at::Device device() const override { return inner_->device(); }

 private:
  std::unique_ptr<LaneCompute> inner_;
  RankDrill& drill_;
  bool poisons_ = false;  // poison an output of this step
};

}  // namespace

int drill_position(const FaultDrill& drill, const std::vector<Operation>& operations) {
  const int middle = static_cast<int>(operations.size()) / 2;
  const bool forward = drill.kind == FaultKind::kNan;
  const bool send = drill.kind == FaultKind::kWrongSize;
  const auto concerned = [&](const Operation& operation) {
    return operation.unit.module >= 0 && (!forward || operation.kind == OperationKind::kForward) &&
           (!send || operation.kind == OperationKind::kSend);
  };
  int position = -1;
  for (int i = 0; i < static_cast<int>(operations.size()); ++i) {
    if (concerned(operations[static_cast<std::size_t>(i)]) && position < middle) {
      position = i;
    }
  }
  return position;
}

std::unique_ptr<LaneCompute> RankDrill::around(std::unique_ptr<LaneCompute> compute) {
  return std::make_unique<DrilledCompute>(std::move(compute), *this);
}

void RankDrill::begin_step(const StepInputs& inputs, RunMode mode) {
  target_.reset();
  num_passed_.clear();
  if (mode != RunMode::kTrain || inputs.step != drill_.step) {
    return;
  }
  const std::vector<Operation>& operations =
      inputs.program->replicas.at(static_cast<std::size_t>(place_.replica))
          .lanes.at(static_cast<std::size_t>(place_.lane));
  const int position = drill_position(drill_, operations);
  if (position >= 0) {
    const auto target = operations.begin() + position;
    target_ = *target;
    message_ =
        static_cast<int>(std::count_if(operations.begin(), target, [&](const Operation& operation) {
          return operation.kind == target->kind && operation.channel == target->channel;
        }));
  }
}

bool RankDrill::strikes(OperationKind kind, const UnitKey& unit) const {
  return target_.has_value() && target_->kind == kind && target_->unit == unit && misbehave();
}

bool RankDrill::strikes(OperationKind kind, const ChannelKey& channel) {
  return target_.has_value() && target_->kind == kind && target_->channel == channel.channel &&
         num_passed_[channel]++ == message_ && misbehave();
}

bool RankDrill::misbehave() const {
  switch (drill_.kind) {
    case FaultKind::kThrow:
      throw std::runtime_error("fault drill: this rank is configured to fail here");
    case FaultKind::kHang:
      std::this_thread::sleep_for(drill_.hang);
      return true;
    case FaultKind::kDie:
      throw RankVanished();
    default:
      return true;
  }
}

void DrilledComm::send(const ChannelKey& channel, std::uint64_t tag, at::Tensor tensor) {
  if (drill_.strikes(OperationKind::kSend, channel) && drill_.kind() == FaultKind::kWrongSize) {
    tensor = at::cat({tensor, tensor.narrow(0, 0, 1)});
  }
  RecordedComm::send(channel, tag, std::move(tensor));
}

std::unique_ptr<PendingReceive> DrilledComm::post_receive(const ChannelKey& channel,
                                                          std::uint64_t tag,
                                                          std::vector<std::int64_t> shape,
                                                          at::TensorOptions options) {
  drill_.strikes(OperationKind::kReceive, channel);
  return RecordedComm::post_receive(channel, tag, std::move(shape), options);
}

}  // namespace entrain::engine
