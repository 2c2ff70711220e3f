#include "entrain/engine/models/weight_gradients.h"

#include <utility>

#include <torch/csrc/autograd/custom_function.h>

namespace entrain::engine {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

thread_local WeightGradientsPtr current_gradients;

constexpr const char* kOwner = "weight gradients";
constexpr const char* kRecomputed = "recomputed input";

void remember_owner(AutogradContext* context) {
  if (const WeightGradientsPtr& owner = WeightGradientsScope::current()) {
    context->saved_data[kOwner] = c10::IValue::make_capsule(owner);
  }
}

// The gradient of `parameter`, or nothing if it is deferred.
at::Tensor now_or_later(AutogradContext* context,
                        const at::Tensor& parameter,
                        std::function<at::Tensor()> gradient) {
  const auto found = context->saved_data.find(kOwner);
  if (found != context->saved_data.end()) {
    const auto capsule = found->second.toCapsule();
    auto& owner = static_cast<WeightGradients&>(*capsule);
    if (owner.deferred()) {
      owner.add(parameter, std::move(gradient));
      return {};
    }
  }
  return gradient();
}

void remember_input(AutogradContext* context, const RecomputedInputPtr& recomputed) {
  recomputed->add_reader();
  context->saved_data[kRecomputed] = c10::IValue::make_capsule(recomputed);
}

RecomputedInputPtr remembered_input(AutogradContext* context) {
  const auto found = context->saved_data.find(kRecomputed);
  return found == context->saved_data.end()
             ? RecomputedInputPtr()
             : RecomputedInputPtr::reclaim_copy(
                   static_cast<RecomputedInput*>(found->second.toCapsule().get()));
}

at::ScalarType wide(at::ScalarType dtype) {
  return at::promoteTypes(dtype, at::kFloat);
}

class SplitLinear : public torch::autograd::Function<SplitLinear> {
 public:
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& input,
                            const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias,
                            const RecomputedInputPtr& recomputed) {
    const bool reads_input = weight.requires_grad();
    context->save_for_backward(
        {reads_input && !recomputed ? input : at::Tensor(), weight, bias.value_or(at::Tensor())});
    if (reads_input && recomputed) {
      remember_input(context, recomputed);
    }
    remember_owner(context);
    return at::linear(input, weight.flatten(1), bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const at::Tensor& bias = saved[2];
    const at::Tensor& gradient = gradients[0];
    variable_list result(4);
    if (context->needs_input_grad(0)) {
      result[0] = at::mm(gradient, weight.flatten(1));
    }
    if (context->needs_input_grad(1)) {
      result[1] = now_or_later(
          context,
          weight,
          [gradient,
           input = saved[0],
           recomputed = remembered_input(context),
           shape = weight.sizes().vec()] {
            return at::mm(gradient.t(), recomputed ? recomputed->read() : input).view(shape);
          });
    }
    if (bias.defined() && context->needs_input_grad(2)) {
      result[2] = now_or_later(context, bias, [gradient] {
        return gradient.sum(0, false, wide(gradient.scalar_type()));
      });
    }
    return result;
  }
};

class SplitEmbedding : public torch::autograd::Function<SplitEmbedding> {
 public:
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& weight,
                            const at::Tensor& ids) {
    context->save_for_backward({weight, ids});
    remember_owner(context);
    return at::embedding(weight, ids);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& weight = saved[0];
    // A token may occur a thousand times in a pack: its gradients are accumulated in float32.
    const auto table_gradient = [gradient = gradients[0], ids = saved[1], rows = weight.size(0)] {
      return at::embedding_dense_backward(gradient.to(wide(gradient.scalar_type())),
                                          ids,
                                          rows,
                                          /*padding_idx=*/-1,
                                          /*scale_grad_by_freq=*/false);
    };
    return {now_or_later(context, weight, table_gradient), at::Tensor()};
  }
};

}  // namespace

void WeightGradients::add(const at::Tensor& parameter, std::function<at::Tensor()> gradient) {
  waiting_.push_back({parameter, std::move(gradient)});
}

std::vector<at::Tensor> WeightGradients::parameters() const {
  std::vector<at::Tensor> result;
  for (const Piece& piece : waiting_) {
    result.push_back(piece.parameter);
  }
  return result;
}

void WeightGradients::run(const std::function<void(const at::Tensor& parameter)>& added) {
  const at::NoGradGuard no_grad;
  for (Piece& waiting : std::exchange(waiting_, {})) {
    const Piece piece = std::move(waiting);
    at::Tensor& sum = piece.parameter.mutable_grad();
    if (sum.defined()) {
      sum.add_(piece.gradient());
    } else {
      const at::Tensor gradient = piece.gradient();
      sum = gradient.to(piece.parameter.grad_dtype().value_or(gradient.scalar_type()));
    }
    if (added) {
      added(piece.parameter);
    }
  }
}

at::Tensor RecomputedInput::read() {
  if (!made_.defined()) {
    made_ = make_();
  }
  return --readers_ > 0 ? made_ : std::exchange(made_, at::Tensor());
}

WeightGradientsScope::WeightGradientsScope(WeightGradientsPtr gradients)
    : outer_(std::exchange(current_gradients, std::move(gradients))) {}

WeightGradientsScope::~WeightGradientsScope() {
  current_gradients = std::move(outer_);
}

const WeightGradientsPtr& WeightGradientsScope::current() {
  return current_gradients;
}

at::Tensor split_linear(const at::Tensor& input,
                        const at::Tensor& weight,
                        const std::optional<at::Tensor>& bias,
                        const RecomputedInputPtr& recomputed) {
  return SplitLinear::apply(input, weight, bias, recomputed);
}

at::Tensor split_embedding(const at::Tensor& weight, const at::Tensor& ids) {
  return SplitEmbedding::apply(weight, ids);
}

}  // namespace entrain::engine
