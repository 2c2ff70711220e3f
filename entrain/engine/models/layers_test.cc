#include "entrain/engine/models/layers.h"

#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/engine/tensors.h"

namespace entrain::engine {
namespace {

using oracle::gradient_error;
using oracle::largest_difference;
using oracle::random_tensor;

std::vector<std::int64_t> zeros_like(const std::vector<std::int64_t>& lengths) {
  return std::vector<std::int64_t>(lengths.size(), 0);
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

TEST(Rotary, RunsMayBeginAtAnyPosition) {
  const std::vector<std::int64_t> whole = {9};
  const std::vector<std::int64_t> begins = {6, 0, 2};
  const std::vector<std::int64_t> lengths = {3, 2, 4};
  const at::TensorOptions options(at::kDouble);
  const RotaryTable all = rotary_table(zeros_like(whole), whole, 8, 500.0, options);
  const RotaryTable runs = rotary_table(begins, lengths, 8, 500.0, options);
  const at::Tensor positions = at::tensor({6, 7, 8, 0, 1, 2, 3, 4, 5}, at::kLong);
  EXPECT_TRUE(at::equal(runs.cosine, all.cosine.index_select(0, positions)));
  EXPECT_TRUE(at::equal(runs.sine, all.sine.index_select(0, positions)));
}

TEST(Rotary, OneAxisEqualsNaiveLoops) {
  const std::vector<std::int64_t> lengths = {3, 1, 5};
  const at::Tensor heads = random_tensor({9, 2, 8}, "heads");
  const RotaryTable table = rotary_table(zeros_like(lengths), lengths, 8, 500.0, heads.options());
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
  const RotaryTable table = rotary_table(
      std::span<const SegmentGrid>(grids), 2, 8, 10000.0, RotaryLayout::kSpans, heads.options());
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
  const RotaryTable table = rotary_table(zeros_like(lengths), lengths, 6, 100.0, heads.options());
  EXPECT_LT(gradient_error([&](const at::Tensor& x) { return rotate(x, table); }, heads), 1e-8);
}

TEST(Rotary, OperatorsEqualTheLoops) {
  const std::vector<SegmentGrid> grids = {{2, 4}};
  const at::Tensor heads = random_tensor({8, 2, 8}, "heads");
  const RotaryTable table = rotary_table(
      std::span<const SegmentGrid>(grids), 2, 8, 100.0, RotaryLayout::kSpans, heads.options());
  const RotaryTable narrow = {table.cosine.to(at::kFloat), table.sine.to(at::kFloat)};
  // A table of another dtype takes the operator path that other devices use.
  EXPECT_LT(largest_difference(rotate(heads, narrow), rotate(heads, table)), 1e-6);
}

// Nothing is lost but the rounding of the result, at late positions too.
TEST(Rotary, RoundsOnceInBfloat16) {
  const std::vector<std::int64_t> lengths = {3000};
  const at::Tensor heads = random_tensor({3000, 2, 16}, "heads", at::kBFloat16);
  const RotaryTable table =
      rotary_table(zeros_like(lengths), lengths, 16, 10000.0, heads.options());
  const at::Tensor exact = heads.to(at::kDouble);
  const RotaryTable exact_table =
      rotary_table(zeros_like(lengths), lengths, 16, 10000.0, exact.options());
  const at::Tensor expected = rotate(exact, exact_table);
  const at::Tensor actual = rotate(heads, table);
  EXPECT_EQ(actual.scalar_type(), at::kBFloat16);
  const at::Tensor rounding = expected.abs() / 256 + 1e-5;
  EXPECT_TRUE(((actual.to(at::kDouble) - expected).abs() <= rounding).all().item<bool>());
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
  EXPECT_LT(largest_difference(
                mlp(input, Activation::kSilu, Matrix{gate, {}}, {up, {}}, {down, {}}), expected),
            1e-12);
}

}  // namespace
}  // namespace entrain::engine
