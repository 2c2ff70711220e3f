#include "entrain/engine/models/layers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include <torch/csrc/autograd/custom_function.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

// [width / 2] float64: radians that a pair of dimensions turns per position.
at::Tensor frequencies_of(std::int64_t width, double theta, const RopeScaling& scaling) {
  const at::Tensor exponents =
      at::arange(width / 2, at::TensorOptions(at::kDouble)) * (-2.0 / static_cast<double>(width));
  const at::Tensor plain = at::pow(at::Scalar(theta), exponents);
  if (scaling.kind == RopeScaling::Kind::kNone) {
    return plain;
  }
  const at::Tensor slow = plain / scaling.factor;
  if (scaling.kind == RopeScaling::Kind::kLinear) {
    return slow;
  }
  // How far the wavelength is from the long end of the transition to its short one, in [0, 1].
  const at::Tensor turns =
      plain * (static_cast<double>(scaling.original_max_position) / (2.0 * std::numbers::pi));
  const at::Tensor part =
      ((turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor))
          .clamp(0.0, 1.0);
  return (1.0 - part) * slow + part * plain;
}

// Cosines and sines of an axis's first positions, each [positions, width / 2], in float32 or wider.
// Angles are float64, so that the result is right to float32's last bit.
RotaryTable axis_table(std::int64_t num_positions,
                       std::int64_t width,
                       double theta,
                       const at::TensorOptions& options,
                       const RopeScaling& scaling = {}) {
  const auto wide = at::TensorOptions(at::kDouble);
  const at::Tensor angles =
      at::outer(at::arange(num_positions, wide), frequencies_of(width, theta, scaling));
  const at::TensorOptions result =
      options.dtype(at::promoteTypes(options.dtype().toScalarType(), at::kFloat));
  return {angles.cos().to(result), angles.sin().to(result)};
}

// The pairs that rotate by time, by row and by column.
std::vector<at::Tensor> pairs_of_axes(std::span<const int> sections,
                                      bool interleaved,
                                      at::Device device) {
  std::vector<std::vector<std::int64_t>> pairs(sections.size());
  std::int64_t pair = 0;
  for (std::size_t section = 0; section < sections.size(); ++section) {
    for (int i = 0; i < sections[section]; ++i, ++pair) {
      const auto axis = interleaved ? static_cast<std::size_t>(pair % 3) : section;
      pairs[pair < 3 * sections[axis] || !interleaved ? axis : 0].push_back(pair);
    }
  }
  std::vector<at::Tensor> result;
  for (const std::vector<std::int64_t>& of_axis : pairs) {
    result.push_back(index_tensor(of_axis, device));
  }
  return result;
}

// Heads of type S, computed in T.
template <class T, class S>
void rotate_rows(const at::Tensor& input,
                 const at::Tensor& cosine,
                 const at::Tensor& sine,
                 at::Tensor& output) {
  const std::int64_t rows = input.size(0);
  const std::int64_t heads = input.size(1);
  const std::int64_t head_dim = input.size(2);
  const std::int64_t axes = cosine.size(2);
  const std::int64_t half = cosine.size(3);
  const S* __restrict x = input.const_data_ptr<S>();
  S* __restrict y = output.mutable_data_ptr<S>();
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* __restrict row_cosine = cosine.const_data_ptr<T>() + row * axes * half;
    const T* __restrict row_sine = sine.const_data_ptr<T>() + row * axes * half;
    for (std::int64_t head = 0; head < heads; ++head, x += head_dim, y += head_dim) {
      for (std::int64_t axis = 0; axis < axes; ++axis) {
        const T* c = row_cosine + axis * half;
        const T* s = row_sine + axis * half;
        const S* low = x + axis * 2 * half;
        S* out = y + axis * 2 * half;
        for (std::int64_t i = 0; i < half; ++i) {
          out[i] =
              static_cast<S>(static_cast<T>(low[i]) * c[i] - static_cast<T>(low[i + half]) * s[i]);
        }
        for (std::int64_t i = 0; i < half; ++i) {
          out[i + half] =
              static_cast<S>(static_cast<T>(low[i + half]) * c[i] + static_cast<T>(low[i]) * s[i]);
        }
      }
    }
  }
}

at::Tensor rotated(const at::Tensor& heads, const at::Tensor& cosine, const at::Tensor& sine) {
  const at::ScalarType dtype = heads.scalar_type();
  if (heads.device().is_cpu() && cosine.scalar_type() == at::promoteTypes(dtype, at::kFloat) &&
      (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16)) {
    const at::Tensor input = heads.contiguous();
    at::Tensor output = at::empty_like(input);
    if (dtype == at::kFloat) {
      rotate_rows<float, float>(input, cosine, sine, output);
    } else if (dtype == at::kBFloat16) {
      rotate_rows<float, at::BFloat16>(input, cosine, sine, output);
    } else {
      rotate_rows<double, double>(input, cosine, sine, output);
    }
    return output;
  }
  const at::Tensor spans =
      heads.reshape({heads.size(0), heads.size(1), cosine.size(2), 2 * cosine.size(3)});
  const std::vector<at::Tensor> halves = at::chunk(spans, 2, -1);
  const at::Tensor turned =
      at::cat({halves[0] * cosine - halves[1] * sine, halves[1] * cosine + halves[0] * sine}, -1);
  return turned.reshape(heads.sizes()).to(dtype);
}

// Keeps only the table: a rotation's gradient is the inverse rotation.
class Rotation : public torch::autograd::Function<Rotation> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& heads,
                            const at::Tensor& cosine,
                            const at::Tensor& sine) {
    context->save_for_backward({cosine, sine});
    return rotated(heads, cosine, sine);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    return {rotated(gradients[0], saved[0], saved[1].neg()), at::Tensor(), at::Tensor()};
  }
};

// LayerNorm of narrow numbers, computed in float32, whose parameters get float32 gradients.
class WideLayerNorm : public torch::autograd::Function<WideLayerNorm> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& input,
                            const at::Tensor& weight,
                            const at::Tensor& bias,
                            double epsilon) {
    const auto [result, mean, scale] = at::native_layer_norm(input.to(at::kFloat),
                                                             {input.size(-1)},
                                                             weight.to(at::kFloat),
                                                             bias.to(at::kFloat),
                                                             epsilon);
    context->save_for_backward({input, weight, bias, mean, scale});
    return result.to(input.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const auto [input, weight, bias] = at::native_layer_norm_backward(gradients[0].to(at::kFloat),
                                                                      saved[0].to(at::kFloat),
                                                                      {saved[0].size(-1)},
                                                                      saved[3],
                                                                      saved[4],
                                                                      saved[1].to(at::kFloat),
                                                                      saved[2].to(at::kFloat),
                                                                      {true, true, true});
    return {input.to(saved[0].scalar_type()), weight, bias, at::Tensor()};
  }
};

// Where segments begin and where the last ends, as kernels for many segments take it: int32 on the
// device. Kept per thread, since every layer of a group asks for the same.
class Boundaries {
 public:
  const at::Tensor& of(std::span<const std::int64_t> lengths, at::Device device) {
    if (!values_.defined() || values_.device() != device ||
        !std::equal(lengths_.begin(), lengths_.end(), lengths.begin(), lengths.end())) {
      lengths_.assign(lengths.begin(), lengths.end());
      at::Tensor ends = at::zeros({std::ssize(lengths) + 1}, at::kInt);
      std::partial_sum(lengths.begin(), lengths.end(), ends.data_ptr<int>() + 1);
      values_ = ends.to(device);
    }
    return values_;
  }

 private:
  std::vector<std::int64_t> lengths_;
  at::Tensor values_;
};

// One kernel of a GPU for all segments, where there is one for these types and widths: flash
// attention in 16 bits, memory-efficient attention in float32. Undefined elsewhere.
at::Tensor attention_at_once(const at::Tensor& query,
                             const at::Tensor& key,
                             const at::Tensor& value,
                             std::span<const std::int64_t> lengths,
                             bool causal) {
  const std::int64_t width = query.size(2);
  if (!query.is_cuda() || width % 8 != 0 || width > 256 || lengths.empty()) {
    return {};
  }
  const bool narrow = query.scalar_type() == at::kBFloat16 || query.scalar_type() == at::kHalf;
  if (!narrow && query.scalar_type() != at::kFloat) {
    return {};
  }
  thread_local Boundaries boundaries;
  const at::Tensor& ends = boundaries.of(lengths, query.device());
  const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  at::Tensor attended;
  if (narrow) {
    attended = std::get<0>(at::_flash_attention_forward(
        query, key, value, ends, ends, longest, longest, 0.0, causal, false));
  } else {
    const std::int64_t repeats = query.size(1) / key.size(1);
    const auto all_heads = [&](const at::Tensor& rows) {
      return (repeats == 1 ? rows : rows.repeat_interleave(repeats, 1)).unsqueeze(0);
    };
    attended = std::get<0>(at::_efficient_attention_forward(query.unsqueeze(0),
                                                            all_heads(key),
                                                            all_heads(value),
                                                            std::nullopt,
                                                            ends,
                                                            ends,
                                                            longest,
                                                            longest,
                                                            0.0,
                                                            causal ? 1 : 0,
                                                            /*compute_log_sumexp=*/true));
  }
  return attended.reshape({query.size(0), query.size(1) * width});
}

}  // namespace

RotaryTable rotary_table(std::span<const std::int64_t> begins,
                         std::span<const std::int64_t> lengths,
                         std::int64_t head_dim,
                         double theta,
                         const at::TensorOptions& options,
                         const RopeScaling& scaling) {
  ENTRAIN_INVARIANT(head_dim % 2 == 0, concat("head_dim is ", head_dim, ", must be even"));
  std::int64_t end = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    end = std::max(end, begins[i] + lengths[i]);
  }
  const RotaryTable axis = axis_table(end, head_dim, theta, options, scaling);
  const auto repeated = [&](const at::Tensor& values) {
    std::vector<at::Tensor> runs;
    runs.reserve(lengths.size());
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      runs.push_back(values.narrow(0, begins[i], lengths[i]));
    }
    const at::Tensor all = runs.empty() ? values : at::cat(runs);
    return all.view({all.size(0), 1, 1, head_dim / 2});
  };
  return {repeated(axis.cosine), repeated(axis.sine)};
}

RotaryTable rotary_table(std::span<const SegmentGrid> segments,
                         std::int64_t merge_size,
                         std::int64_t head_dim,
                         double theta,
                         RotaryLayout layout,
                         const at::TensorOptions& options) {
  ENTRAIN_INVARIANT(head_dim % 4 == 0,
                    concat("head_dim is ", head_dim, ", must be divisible by 4"));
  std::vector<std::int64_t> positions;  // [T, 2] row and column of each patch
  std::int64_t longest = 0;
  for (const SegmentGrid& grid : segments) {
    ENTRAIN_INVARIANT(
        grid.rows % merge_size == 0 && grid.columns % merge_size == 0,
        concat(
            "grid ", grid.rows, "x", grid.columns, " is not divisible by merge size ", merge_size));
    longest = std::max({longest, grid.rows, grid.columns});
    for_each_patch(grid, merge_size, [&](std::int64_t row, std::int64_t column) {
      positions.push_back(row);
      positions.push_back(column);
    });
  }
  const auto tokens = static_cast<std::int64_t>(positions.size()) / 2;
  const RotaryTable axis = axis_table(longest, head_dim / 2, theta, options);
  const at::Tensor index = index_tensor(positions, options.device());
  const std::int64_t spans = layout == RotaryLayout::kSpans ? 2 : 1;
  const auto gathered = [&](const at::Tensor& values) {
    return values.index_select(0, index).view({tokens, 1, spans, head_dim / 2 / spans});
  };
  return {gathered(axis.cosine), gathered(axis.sine)};
}

RotaryTable rotary_table(std::span<const AxisPosition> positions,
                         std::span<const int> sections,
                         bool interleaved,
                         double theta,
                         const at::TensorOptions& options,
                         const RopeScaling& scaling) {
  std::array<std::vector<std::int64_t>, 3> axes;
  std::int64_t end = 0;
  for (const AxisPosition& position : positions) {
    axes[0].push_back(position.time);
    axes[1].push_back(position.row);
    axes[2].push_back(position.column);
    end = std::max({end, position.time + 1, position.row + 1, position.column + 1});
  }
  ENTRAIN_INVARIANT(sections.size() == axes.size(), concat(sections.size(), " M-RoPE sections"));
  const std::int64_t pairs = std::accumulate(sections.begin(), sections.end(), std::int64_t{0});
  const RotaryTable axis = axis_table(end, 2 * pairs, theta, options, scaling);
  const std::vector<at::Tensor> pairs_of = pairs_of_axes(sections, interleaved, options.device());
  const auto gathered = [&](const at::Tensor& values) {
    at::Tensor all = at::empty({std::ssize(positions), pairs}, values.options());
    for (std::size_t i = 0; i < axes.size(); ++i) {
      all.index_copy_(1,
                      pairs_of[i],
                      values.index_select(1, pairs_of[i])
                          .index_select(0, index_tensor(axes[i], options.device())));
    }
    return all.view({std::ssize(positions), 1, 1, pairs});
  };
  return {gathered(axis.cosine), gathered(axis.sine)};
}

at::Tensor index_tensor(std::span<const std::int64_t> values, at::Device device) {
  return at::tensor(at::IntArrayRef(values.data(), values.size()), at::kLong).to(device);
}

std::vector<at::Tensor> side_by_side(const at::Tensor& rows, std::int64_t width) {
  if (rows.size(1) == width) {
    return {rows};
  }
  std::vector<at::Tensor> parts = rows.split(width, 1);
  for (at::Tensor& part : parts) {
    part = part.contiguous();
  }
  return parts;
}

at::Tensor widened(const at::Tensor& rows, std::int64_t width) {
  return rows.size(1) == width ? rows : at::constant_pad_nd(rows, {0, width - rows.size(1)});
}

at::Tensor rotate(const at::Tensor& heads, const RotaryTable& table) {
  ENTRAIN_INVARIANT(heads.dim() == 3 && heads.size(0) == table.cosine.size(0) &&
                        heads.size(2) == 2 * table.cosine.size(2) * table.cosine.size(3),
                    concat("heads of shape ",
                           heads.sizes(),
                           " do not fit a rotary table of ",
                           table.cosine.sizes()));
  return Rotation::apply(heads, table.cosine, table.sine);
}

at::Tensor dense_attention(const at::Tensor& query,
                           const at::Tensor& key,
                           const at::Tensor& value,
                           bool causal,
                           const std::optional<at::Tensor>& mask) {
  const at::Tensor attended =
      at::scaled_dot_product_attention(query.transpose(0, 1).unsqueeze(0),
                                       key.transpose(0, 1).unsqueeze(0),
                                       value.transpose(0, 1).unsqueeze(0),
                                       mask,
                                       0.0,
                                       causal,
                                       std::nullopt,
                                       /*enable_gqa=*/query.size(1) != key.size(1));
  return attended.squeeze(0).transpose(0, 1).reshape(
      {query.size(0), query.size(1) * query.size(2)});
}

at::Tensor segment_attention(const at::Tensor& query,
                             const at::Tensor& key,
                             const at::Tensor& value,
                             std::span<const std::int64_t> lengths,
                             bool causal) {
  if (lengths.size() == 1) {
    ENTRAIN_INVARIANT(lengths[0] == query.size(0), "the segment does not fill the rows");
    return dense_attention(query, key, value, causal);
  }
  if (at::Tensor all = attention_at_once(query, key, value, lengths, causal); all.defined()) {
    return all;
  }
  const at::IntArrayRef sizes(lengths.data(), lengths.size());
  const std::vector<at::Tensor> queries = at::split_with_sizes(query, sizes);
  const std::vector<at::Tensor> keys = at::split_with_sizes(key, sizes);
  const std::vector<at::Tensor> values = at::split_with_sizes(value, sizes);
  std::vector<at::Tensor> results;
  results.reserve(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    results.push_back(dense_attention(queries[i], keys[i], values[i], causal));
  }
  return at::cat(results);
}

at::Tensor layer_norm(const at::Tensor& input,
                      const at::Tensor& weight,
                      const at::Tensor& bias,
                      double epsilon) {
  if (input.scalar_type() == at::promoteTypes(input.scalar_type(), at::kFloat)) {
    return at::layer_norm(input, {input.size(-1)}, weight, bias, epsilon);
  }
  return WideLayerNorm::apply(input, weight, bias, epsilon);
}

at::Tensor activated(const at::Tensor& input, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return at::silu(input);
    case Activation::kGelu:
      return at::gelu(input);
    case Activation::kGeluTanh:
      return at::gelu(input, "tanh");
    case Activation::kQuickGelu:
      return input * at::sigmoid(input * 1.702);
  }
  ENTRAIN_INVARIANT(false, "unknown activation");
}

at::Tensor linear(const at::Tensor& input,
                  const Matrix& matrix,
                  const RecomputedInputPtr& recomputed) {
  const at::Tensor base = split_linear(input, matrix.weight, matrix.bias, recomputed);
  if (!matrix.adapter.has_value()) {
    return base;
  }
  // Scaled where it is narrow, so that B's deferred gradient reads the output's gradient as it is.
  const Adapter& adapter = *matrix.adapter;
  const at::Tensor narrow = split_linear(input, adapter.a, {}, recomputed) * adapter.scale;
  return base + split_linear(narrow, adapter.b);
}

at::Tensor mlp(const at::Tensor& input,
               Activation activation,
               const std::optional<Matrix>& gate,
               const Matrix& up,
               const Matrix& down,
               const RecomputedInputPtr& recomputed) {
  if (!gate.has_value()) {
    return linear(activated(linear(input, up, recomputed), activation), down);
  }
  return linear(
      activated(linear(input, *gate, recomputed), activation) * linear(input, up, recomputed),
      down);
}

}  // namespace entrain::engine
