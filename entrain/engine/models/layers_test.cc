#include "entrain/engine/models/layers.h"

#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

namespace entrain::engine {
namespace {

at::Tensor random_tensor(std::vector<std::int64_t> shape,
                         const std::string& name,
                         at::ScalarType dtype = at::kDouble) {
  return initial_weight(name, std::move(shape), 1.0, {.seed = 5, .dtype = dtype});
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// Largest difference between autograd's gradient of Σ f(x)·weights and central differences.
double gradient_error(const std::function<at::Tensor(const at::Tensor&)>& function,
                      const at::Tensor& point) {
  const at::Tensor weights = random_tensor(function(point).sizes().vec(), "difference weights");
  const at::Tensor leaf = point.clone().set_requires_grad(true);
  (function(leaf) * weights).sum().backward();
  constexpr double kStep = 1e-6;
  at::Tensor numeric = at::empty_like(point);
  for (std::int64_t i = 0; i < point.numel(); ++i) {
    at::Tensor high = point.clone();
    at::Tensor low = point.clone();
    high.view(-1)[i] += kStep;
    low.view(-1)[i] -= kStep;
    numeric.view(-1)[i] = ((function(high) - function(low)) * weights).sum() / (2 * kStep);
  }
  return largest_difference(leaf.grad(), numeric);
}

TEST(RmsNorm, EqualsTheCompositeForwardAndBackward) {
  for (const std::int64_t width : {1, 7, 16, 40, 129}) {
    const at::Tensor input = random_tensor({5, width}, "input", at::kFloat);
    const at::Tensor weight = random_tensor({width}, "weight", at::kFloat);
    const at::Tensor gradient = random_tensor({5, width}, "gradient", at::kFloat);
    const at::Tensor x = input.clone().set_requires_grad(true);
    const at::Tensor w = weight.clone().set_requires_grad(true);
    const at::Tensor y = rms_norm(x, w, 1e-6);
    y.backward(gradient);
    const at::Tensor exact_x = input.to(at::kDouble).set_requires_grad(true);
    const at::Tensor exact_w = weight.to(at::kDouble).set_requires_grad(true);
    const at::Tensor exact_y = rms_norm_composite(exact_x, exact_w, 1e-6);
    exact_y.backward(gradient.to(at::kDouble));
    EXPECT_LT(largest_difference(y, exact_y), 1e-5) << "width " << width;
    // Width 1 normalises to a sign, whose gradient is a difference of nearly equal numbers.
    EXPECT_LT(largest_difference(x.grad(), exact_x.grad()), 2e-5) << "width " << width;
    EXPECT_LT(largest_difference(w.grad(), exact_w.grad()), 1e-5) << "width " << width;
  }
}

TEST(RmsNorm, FusedGradientsEqualFiniteDifferences) {
  const at::Tensor input = random_tensor({3, 19}, "input");
  const at::Tensor weight = random_tensor({19}, "weight");
  EXPECT_LT(gradient_error([&](const at::Tensor& x) { return rms_norm(x, weight, 1e-6); }, input),
            1e-7);
  EXPECT_LT(gradient_error([&](const at::Tensor& w) { return rms_norm(input, w, 1e-6); }, weight),
            1e-7);
}

TEST(RmsNorm, LeavesFrozenInputsWithoutGradient) {
  const at::Tensor input = random_tensor({3, 8}, "input").set_requires_grad(true);
  const at::Tensor weight = random_tensor({8}, "weight");
  rms_norm(input, weight, 1e-6).sum().backward();
  EXPECT_TRUE(input.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
  const at::Tensor gain = weight.clone().set_requires_grad(true);
  const at::Tensor frozen = input.detach();
  rms_norm(frozen, gain, 1e-6).sum().backward();
  EXPECT_FALSE(frozen.grad().defined());
  EXPECT_TRUE(gain.grad().defined());
}

TEST(RmsNorm, ReadsRowsThatAreNotContiguous) {
  const at::Tensor wide = random_tensor({4, 20}, "wide");
  const at::Tensor weight = random_tensor({10}, "weight");
  const at::Tensor view = wide.narrow(1, 5, 10);
  EXPECT_LT(
      largest_difference(rms_norm(view, weight, 1e-6), rms_norm_composite(view, weight, 1e-6)),
      1e-12);
}

TEST(RmsNorm, WorksInBfloat16) {
  const at::Tensor input = random_tensor({4, 32}, "input", at::kBFloat16);
  const at::Tensor weight = at::ones({32}, at::kBFloat16);
  const at::Tensor exact = rms_norm(input.to(at::kDouble), weight.to(at::kDouble), 1e-6);
  EXPECT_LT(largest_difference(rms_norm(input, weight, 1e-6), exact), 2e-2);
}

// One head's rotation written out: dimension i of a span turns with i + width / 2.
void turn_span(double* span, std::int64_t width, double position, double theta) {
  for (std::int64_t i = 0; i < width / 2; ++i) {
    const double angle =
        position * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
    const double low = span[i];
    const double high = span[i + width / 2];
    span[i] = low * std::cos(angle) - high * std::sin(angle);
    span[i + width / 2] = high * std::cos(angle) + low * std::sin(angle);
  }
}

TEST(Rotary, OneAxisEqualsNaiveLoops) {
  const std::vector<std::int64_t> lengths = {3, 1, 5};
  const at::Tensor heads = random_tensor({9, 2, 8}, "heads");
  const RotaryTable table =
      rotary_table(std::span<const std::int64_t>(lengths), 8, 500.0, heads.options());
  at::Tensor expected = heads.clone();
  double* row = expected.mutable_data_ptr<double>();
  for (const std::int64_t length : lengths) {
    for (std::int64_t position = 0; position < length; ++position) {
      for (int head = 0; head < 2; ++head, row += 8) {
        turn_span(row, 8, static_cast<double>(position), 500.0);
      }
    }
  }
  EXPECT_LT(largest_difference(rotate(heads, table), expected), 1e-12);
}

TEST(Rotary, TwoAxesFollowMergeBlocks) {
  const std::vector<SegmentGrid> grids = {{4, 2}, {2, 6}};
  const at::Tensor heads = random_tensor({20, 3, 8}, "heads");
  const RotaryTable table =
      rotary_table(std::span<const SegmentGrid>(grids), 2, 8, 10000.0, heads.options());
  // Coordinates in token order: 2×2 blocks row by row, row by row inside.
  const std::vector<std::pair<int, int>> coordinates = {
      {0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {3, 0}, {3, 1}, {0, 0}, {0, 1},
      {1, 0}, {1, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {0, 4}, {0, 5}, {1, 4}, {1, 5}};
  at::Tensor expected = heads.clone();
  double* row = expected.mutable_data_ptr<double>();
  for (const auto& [y, x] : coordinates) {
    for (int head = 0; head < 3; ++head, row += 8) {
      turn_span(row, 4, y, 10000.0);
      turn_span(row + 4, 4, x, 10000.0);
    }
  }
  EXPECT_LT(largest_difference(rotate(heads, table), expected), 1e-12);
}

TEST(Rotary, BackwardTurnsBack) {
  const std::vector<std::int64_t> lengths = {4};
  const at::Tensor heads = random_tensor({4, 2, 6}, "heads");
  const RotaryTable table =
      rotary_table(std::span<const std::int64_t>(lengths), 6, 100.0, heads.options());
  EXPECT_LT(gradient_error([&](const at::Tensor& x) { return rotate(x, table); }, heads), 1e-8);
}

TEST(Rotary, OperatorsEqualTheLoops) {
  const std::vector<SegmentGrid> grids = {{2, 4}};
  const at::Tensor heads = random_tensor({8, 2, 8}, "heads");
  const RotaryTable table =
      rotary_table(std::span<const SegmentGrid>(grids), 2, 8, 100.0, heads.options());
  const RotaryTable narrow = {table.cosine.to(at::kFloat), table.sine.to(at::kFloat)};
  // A table of another dtype takes the operator path that other devices use.
  EXPECT_LT(largest_difference(rotate(heads, narrow), rotate(heads, table)), 1e-6);
}

at::Tensor naive_attention(const at::Tensor& query,
                           const at::Tensor& key,
                           const at::Tensor& value,
                           const std::vector<std::int64_t>& lengths,
                           bool causal) {
  const std::int64_t tokens = query.size(0);
  const std::int64_t shared = query.size(1) / key.size(1);
  at::Tensor allowed = at::zeros({tokens, tokens}, at::kBool);
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    at::Tensor block = at::ones({length, length}, at::kBool);
    allowed.narrow(0, begin, length).narrow(1, begin, length).copy_(causal ? block.tril() : block);
    begin += length;
  }
  const at::Tensor keys = key.repeat_interleave(shared, 1);
  const at::Tensor values = value.repeat_interleave(shared, 1);
  const at::Tensor scores =
      at::einsum("qhd,khd->hqk", {query, keys}) / std::sqrt(static_cast<double>(query.size(2)));
  const at::Tensor weights = at::softmax(
      scores.masked_fill(allowed.logical_not(), -std::numeric_limits<double>::infinity()), -1);
  return at::einsum("hqk,khd->qhd", {weights, values}).reshape({tokens, -1});
}

TEST(SegmentAttention, EqualsMaskedAttention) {
  for (const bool causal : {false, true}) {
    for (const std::int64_t key_heads : {4, 2, 1}) {
      for (const std::vector<std::int64_t>& lengths :
           {std::vector<std::int64_t>{12}, {1, 7, 4}, {3, 3, 3, 3}}) {
        const at::Tensor query = random_tensor({12, 4, 8}, "query");
        const at::Tensor key = random_tensor({12, key_heads, 8}, "key");
        const at::Tensor value = random_tensor({12, key_heads, 8}, "value");
        EXPECT_LT(largest_difference(segment_attention(query, key, value, lengths, causal),
                                     naive_attention(query, key, value, lengths, causal)),
                  1e-12);
      }
    }
  }
}

TEST(SegmentAttention, NeverCrossesSegments) {
  const std::vector<std::int64_t> lengths = {5, 6, 4};
  const at::Tensor query = random_tensor({15, 2, 8}, "query");
  const at::Tensor value = random_tensor({15, 2, 8}, "value");
  const at::Tensor before = segment_attention(query, query, value, lengths, false);
  at::Tensor changed_value = value.clone();
  changed_value.narrow(0, 5, 6).add_(100.0);
  const at::Tensor after = segment_attention(query, query, changed_value, lengths, false);
  EXPECT_TRUE(at::equal(before.narrow(0, 0, 5), after.narrow(0, 0, 5)));
  EXPECT_TRUE(at::equal(before.narrow(0, 11, 4), after.narrow(0, 11, 4)));
  EXPECT_GT(largest_difference(before.narrow(0, 5, 6), after.narrow(0, 5, 6)), 1.0);
}

TEST(GatedMlp, EqualsItsFormula) {
  const at::Tensor input = random_tensor({4, 6}, "input");
  const at::Tensor gate = random_tensor({10, 6}, "gate");
  const at::Tensor up = random_tensor({10, 6}, "up");
  const at::Tensor down = random_tensor({6, 10}, "down");
  const at::Tensor open = at::matmul(input, gate.t());
  const at::Tensor expected =
      at::matmul(open / (1 + at::exp(-open)) * at::matmul(input, up.t()), down.t());
  EXPECT_LT(largest_difference(gated_mlp(input, gate, up, down), expected), 1e-12);
}

}  // namespace
}  // namespace entrain::engine
