#include "entrain/engine/models/recompute.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "entrain/engine/models/weight_gradients.h"

namespace entrain::engine {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Layer : torch::CustomClassHolder {
  Layer(LayerForward forward_of, std::vector<at::Tensor> trainable_of)
      : forward(std::move(forward_of)), trainable(std::move(trainable_of)) {}
  LayerForward forward;
  std::vector<at::Tensor> trainable;
  WeightGradientsPtr weight_gradients = WeightGradientsScope::current();
};

// Inputs: the layer's, then leaves and trainable parameters, so that backward returns their
// gradients.
class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& input,
                            at::TensorList trainable,
                            const LayerForward& layer) {
    context->save_for_backward({input});
    context->saved_data["layer"] =
        c10::IValue::make_capsule(c10::make_intrusive<Layer>(layer, trainable.vec()));
    return layer(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["layer"].toCapsule();
    const auto& layer = static_cast<const Layer&>(*capsule);
    const at::Tensor saved = context->get_saved_variables().front();
    at::Tensor input = saved.detach();
    input.set_requires_grad(saved.requires_grad());
    at::Tensor output;
    {
      const at::AutoGradMode records(true);
      const WeightGradientsScope scope(layer.weight_gradients);
      output = layer.forward(input);
    }
    variable_list inputs = layer.trainable;
    if (input.requires_grad()) {
      inputs.insert(inputs.begin(), input);
    }
    // None here for parameters whose gradients are deferred, and for biases that another rank adds.
    variable_list result = torch::autograd::grad({output},
                                                 inputs,
                                                 gradients,
                                                 /*retain_graph=*/std::nullopt,
                                                 /*create_graph=*/false,
                                                 /*allow_unused=*/true);
    if (!input.requires_grad()) {
      result.insert(result.begin(), at::Tensor());
    }
    result.emplace_back();  // of the layer itself
    return result;
  }
};

}  // namespace

at::Tensor run_recomputed(const at::Tensor& input,
                          std::span<const NamedParameter> parameters,
                          LayerForward layer,
                          std::vector<at::Tensor> leaves) {
  std::vector<at::Tensor> trainable = std::move(leaves);
  for (const NamedParameter& parameter : parameters) {
    if (parameter.tensor.requires_grad()) {
      trainable.push_back(parameter.tensor);
    }
  }
  if (!at::GradMode::is_enabled() || (trainable.empty() && !input.requires_grad())) {
    return layer(input);
  }
  return Recomputed::apply(input, at::TensorList(trainable), layer);
}

}  // namespace entrain::engine
