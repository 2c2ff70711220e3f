// RMSNorm with fused loops on CPU: ATen's own is a composite there, six times slower than a
// layer_norm of the same size.
#include <cmath>
#include <cstdint>
#include <vector>

#include <torch/csrc/autograd/custom_function.h>

#include "entrain/engine/models/layers.h"

namespace entrain::engine {
namespace {

// Loops read and write numbers of type S and compute in T, which is wider where S is narrow.

// Sums run in this many independent lanes, so that the compiler may use vector registers without
// changing the order of additions.
constexpr std::int64_t kLanes = 16;

// Σ term(i) over i < width.
template <class T, class Term>
T lane_sum(std::int64_t width, const Term& term) {
  T lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += term(i + lane);
    }
  }
  T total = 0;
  for (const T value : lanes) {
    total += value;
  }
  for (; i < width; ++i) {
    total += term(i);
  }
  return total;
}

template <class T, class S>
void normalise_rows(const at::Tensor& input,
                    const at::Tensor& weight,
                    T epsilon,
                    at::Tensor& output,
                    at::Tensor& scale) {
  const std::int64_t rows = input.size(0);
  const std::int64_t width = input.size(1);
  const S* __restrict x = input.const_data_ptr<S>();
  const S* __restrict w = weight.const_data_ptr<S>();
  S* __restrict y = output.mutable_data_ptr<S>();
  T* __restrict r = scale.mutable_data_ptr<T>();
  for (std::int64_t row = 0; row < rows; ++row, x += width, y += width) {
    const T squares = lane_sum<T>(width, [x](std::int64_t i) {
      const auto value = static_cast<T>(x[i]);
      return value * value;
    });
    const T factor = T(1) / std::sqrt(squares / static_cast<T>(width) + epsilon);
    r[row] = factor;
    for (std::int64_t i = 0; i < width; ++i) {
      y[i] = static_cast<S>(static_cast<T>(x[i]) * factor * static_cast<T>(w[i]));
    }
  }
}

// With r the row's scale, D the width and s = Σ g·w·x: dx = r·g·w - x·r³·s/D.
template <class T, class S>
void input_gradient_rows(const at::Tensor& gradient,
                         const at::Tensor& input,
                         const at::Tensor& weight,
                         const at::Tensor& scale,
                         at::Tensor& result) {
  const std::int64_t rows = input.size(0);
  const std::int64_t width = input.size(1);
  const S* __restrict g = gradient.const_data_ptr<S>();
  const S* __restrict x = input.const_data_ptr<S>();
  const S* __restrict w = weight.const_data_ptr<S>();
  const T* __restrict r = scale.const_data_ptr<T>();
  S* __restrict dx = result.mutable_data_ptr<S>();
  for (std::int64_t row = 0; row < rows; ++row, g += width, x += width, dx += width) {
    const T factor = r[row];
    const T products = lane_sum<T>(width, [g, w, x](std::int64_t i) {
      return static_cast<T>(g[i]) * static_cast<T>(w[i]) * static_cast<T>(x[i]);
    });
    const T correction = products * factor * factor * factor / static_cast<T>(width);
    for (std::int64_t i = 0; i < width; ++i) {
      dx[i] = static_cast<S>(factor * static_cast<T>(g[i]) * static_cast<T>(w[i]) -
                             static_cast<T>(x[i]) * correction);
    }
  }
}

// dw = Σ over rows of g·x·r, rows in rising order.
template <class T, class S>
void weight_gradient_rows(const at::Tensor& gradient,
                          const at::Tensor& input,
                          const at::Tensor& scale,
                          at::Tensor& result) {
  const std::int64_t rows = input.size(0);
  const std::int64_t width = input.size(1);
  const S* __restrict g = gradient.const_data_ptr<S>();
  const S* __restrict x = input.const_data_ptr<S>();
  const T* __restrict r = scale.const_data_ptr<T>();
  T* __restrict dw = result.mutable_data_ptr<T>();
  for (std::int64_t row = 0; row < rows; ++row, g += width, x += width) {
    const T factor = r[row];
    for (std::int64_t i = 0; i < width; ++i) {
      dw[i] += static_cast<T>(g[i]) * static_cast<T>(x[i]) * factor;
    }
  }
}

// body(zero of T, zero of S) for numbers of `dtype`.
template <class Body>
void with_scalars(at::ScalarType dtype, const Body& body) {
  if (dtype == at::kFloat) {
    body(float{}, float{});
  } else if (dtype == at::kBFloat16) {
    body(float{}, at::BFloat16{});
  } else {
    body(double{}, double{});
  }
}

at::TensorOptions wide_options(const at::Tensor& tensor) {
  return tensor.options().dtype(at::promoteTypes(tensor.scalar_type(), at::kFloat));
}

class FusedRmsNorm : public torch::autograd::Function<FusedRmsNorm> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& input,
                            const at::Tensor& weight,
                            double epsilon) {
    const at::Tensor rows = input.contiguous();
    const at::Tensor gain = weight.contiguous();
    at::Tensor output = at::empty_like(rows);
    at::Tensor scale = at::empty({rows.size(0)}, wide_options(rows));
    with_scalars(rows.scalar_type(), [&](auto wide_zero, auto zero) {
      using T = decltype(wide_zero);
      normalise_rows<T, decltype(zero)>(rows, gain, static_cast<T>(epsilon), output, scale);
    });
    context->save_for_backward({rows, gain, scale});
    return output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& scale = saved[2];
    const at::Tensor gradient = gradients[0].contiguous();
    at::Tensor input_gradient;
    at::Tensor weight_gradient;
    with_scalars(input.scalar_type(), [&](auto wide_zero, auto zero) {
      using T = decltype(wide_zero);
      using S = decltype(zero);
      if (context->needs_input_grad(0)) {
        input_gradient = at::empty_like(input);
        input_gradient_rows<T, S>(gradient, input, weight, scale, input_gradient);
      }
      if (context->needs_input_grad(1)) {
        weight_gradient = at::zeros(weight.sizes(), wide_options(weight));
        weight_gradient_rows<T, S>(gradient, input, scale, weight_gradient);
      }
    });
    return {input_gradient, weight_gradient, at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm_composite(const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  const at::ScalarType dtype = input.scalar_type();
  const at::ScalarType wide = at::promoteTypes(dtype, at::kFloat);
  const at::Tensor x = input.to(wide);
  const at::Tensor scale = at::rsqrt(at::mean(x * x, {-1}, true) + epsilon);
  return (x * scale * weight.to(wide)).to(dtype);
}

at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  const at::ScalarType dtype = input.scalar_type();
  if (input.device().is_cpu() &&
      (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16) &&
      weight.scalar_type() == dtype) {
    return FusedRmsNorm::apply(input, weight, epsilon);
  }
  return rms_norm_composite(input, weight, epsilon);
}

}  // namespace entrain::engine
