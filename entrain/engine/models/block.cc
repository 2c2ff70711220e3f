#include "entrain/engine/models/block.h"

#include <array>
#include <optional>
#include <vector>

#include "entrain/engine/models/weight_reader.h"

namespace entrain::engine {
namespace {

struct Heads {
  at::Tensor query;  // [T, H, D]
  at::Tensor key;    // [T, G, D]
  at::Tensor value;
};

// Of every head, its RMSNorm if there is a gain, rotated if there is a table.
at::Tensor turned(const at::Tensor& heads,
                  const at::Tensor* gain,
                  double epsilon,
                  const RotaryTable* table) {
  const at::Tensor normed =
      gain == nullptr
          ? heads
          : rms_norm(heads.reshape({-1, heads.size(2)}), *gain, epsilon).view(heads.sizes());
  return table == nullptr ? normed : rotate(normed, *table);
}

// Value, key, query: gradients of the input are added up in the reverse of the order in which the
// graph is recorded, which results depend on bit for bit.
Heads heads_of(const BlockSpec& block,
               const MatrixInput& input,
               std::int64_t tokens,
               WeightReader& weights,
               const RotaryTable* table) {
  const std::int64_t width = block.width_of_head();
  const double epsilon = block.norm_epsilon;
  const auto product = [&](const Matrix& of, std::vector<std::int64_t> shape) {
    return linear(input.rows, of, input.again).view(shape);
  };
  if (block.packed_qkv) {
    const std::vector<at::Tensor> parts =
        at::unbind(product(weights.matrix(block.qkv_bias), {tokens, 3, block.num_heads, width}), 1);
    const at::Tensor query = turned(parts[0], nullptr, epsilon, table);
    return {query, turned(parts[1], nullptr, epsilon, table), parts[2]};
  }
  const Matrix of_query = weights.matrix(block.qkv_bias);
  const Matrix of_key = weights.matrix(block.qkv_bias && block.key_bias);
  const Matrix of_value = weights.matrix(block.qkv_bias);
  const at::Tensor* query_gain = block.qk_norm ? &weights.take() : nullptr;
  const at::Tensor* key_gain = block.qk_norm ? &weights.take() : nullptr;
  Heads heads;
  heads.value = product(of_value, {tokens, block.kv_heads(), width});
  heads.key = turned(product(of_key, {tokens, block.kv_heads(), width}), key_gain, epsilon, table);
  heads.query =
      turned(product(of_query, {tokens, block.num_heads, width}), query_gain, epsilon, table);
  return heads;
}

}  // namespace

void slice_block(BlockSpec& block, int tensor_parallel) {
  block.head_dim = block.width_of_head();
  block.num_kv_heads = block.kv_heads() / tensor_parallel;
  block.num_heads /= tensor_parallel;
  block.intermediate /= tensor_parallel;
}

Matrix completed_by(const TensorGroupPtr& group, Matrix matrix) {
  if (!adds_bias(group)) {
    matrix.bias.reset();
  }
  return matrix;
}

bool adds_bias(const TensorGroupPtr& group) {
  return group == nullptr || group->index == 0;
}

at::Tensor run_block(const BlockSpec& block,
                     const TensorGroupPtr& group,
                     std::span<const NamedParameter> layer,
                     const at::Tensor& input,
                     std::int64_t tokens,
                     const RotaryTable* table,
                     const Attend& attend) {
  WeightReader weights(layer, block.lora);
  const double epsilon = block.norm_epsilon;
  const auto scaled = [&](const at::Tensor& rows) {
    return block.layer_scale ? rows * weights.take() : rows;
  };
  const MatrixInput normed =
      gather_input(weights.normed(block.norm, input, epsilon), tokens, group);
  const Heads heads = heads_of(block, normed, tokens, weights, table);
  const at::Tensor attended = attend(heads.query, heads.key, heads.value);
  const Matrix output = completed_by(group, weights.matrix(block.output_bias));
  const at::Tensor middle = input + scaled(reduce_scatter(linear(attended, output), group));
  const MatrixInput wide = gather_input(weights.normed(block.norm, middle, epsilon), tokens, group);
  std::optional<Matrix> gate;
  if (block.gated_mlp) {
    gate = weights.matrix(block.mlp_bias);
  }
  const Matrix up = weights.matrix(block.mlp_bias);
  const Matrix down = completed_by(group, weights.matrix(block.mlp_bias));
  return middle + scaled(reduce_scatter(
                      mlp(wide.rows, block.activation, gate, up, down, wide.again), group));
}

}  // namespace entrain::engine
