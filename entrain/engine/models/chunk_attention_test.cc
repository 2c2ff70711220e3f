#include "entrain/engine/models/chunk_attention.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "entrain/engine/models/layers.h"

#include "tests/oracle/engine/tensors.h"

namespace entrain::engine {
namespace {

using oracle::largest_difference;
using oracle::random_tensor;

constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kHeadDim = 6;

// Queries of the last rows, keys and values in pieces; all leaves with gradients.
struct Pieces {
  at::Tensor query;
  std::vector<at::Tensor> keys;
  std::vector<at::Tensor> values;
};

Pieces make_pieces(const std::vector<std::int64_t>& rows,
                   std::int64_t key_heads,
                   at::ScalarType dtype) {
  const auto leaf = [&](std::int64_t count, std::int64_t heads, const std::string& name) {
    return random_tensor({count, heads, kHeadDim}, name, dtype).set_requires_grad(true);
  };
  Pieces pieces;
  pieces.query = leaf(rows.back(), kHeads, "query");
  for (std::size_t p = 0; p < rows.size(); ++p) {
    pieces.keys.push_back(leaf(rows[p], key_heads, "key " + std::to_string(p)));
    pieces.values.push_back(leaf(rows[p], key_heads, "value " + std::to_string(p)));
  }
  return pieces;
}

// By matrix products and softmax in float64.
at::Tensor naive(const Pieces& pieces) {
  const std::int64_t repeats = kHeads / pieces.keys[0].size(1);
  const auto all = [&](const std::vector<at::Tensor>& tensors) {
    return at::cat(tensors).to(at::kDouble).repeat_interleave(repeats, 1).transpose(0, 1);
  };
  const at::Tensor query = pieces.query.to(at::kDouble).transpose(0, 1);
  at::Tensor scores = at::matmul(query, all(pieces.keys).transpose(1, 2));
  const std::int64_t hidden_from = scores.size(2) - scores.size(1) + 1;
  const at::Tensor hidden = at::ones_like(scores[0].detach()).triu(hidden_from).to(at::kBool);
  scores = at::masked_fill(scores / std::sqrt(kHeadDim), hidden, -INFINITY);
  return at::matmul(at::softmax(scores, -1), all(pieces.values))
      .transpose(0, 1)
      .reshape({-1, kHeads * kHeadDim});
}

std::vector<at::Tensor> gradients_of(const Pieces& pieces) {
  std::vector<at::Tensor> result = {pieces.query.grad()};
  for (std::size_t p = 0; p < pieces.keys.size(); ++p) {
    result.push_back(pieces.keys[p].grad());
    result.push_back(pieces.values[p].grad());
  }
  return result;
}

TEST(ChunkAttention, EqualsPlainSoftmaxForwardAndBackward) {
  const std::vector<std::vector<std::int64_t>> cuts = {
      {5}, {3, 4}, {1, 1}, {40, 1}, {2, 7, 5}, {1, 33, 2, 20}};
  for (const std::vector<std::int64_t>& rows : cuts) {
    for (const std::int64_t key_heads : {kHeads, std::int64_t{2}, std::int64_t{1}}) {
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
        const double tolerance = dtype == at::kFloat ? 1e-5 : 1e-12;
        const Pieces expected = make_pieces(rows, key_heads, dtype);
        const at::Tensor result = naive(expected);
        const at::Tensor weights = random_tensor(result.sizes().vec(), "weights");
        (result * weights).sum().backward();
        for (const auto& attend : {chunk_attention, chunk_attention_masked}) {
          const Pieces actual = make_pieces(rows, key_heads, dtype);
          const at::Tensor attended = attend(actual.query, actual.keys, actual.values);
          EXPECT_LT(largest_difference(attended, result), tolerance);
          (attended * weights.to(dtype)).sum().backward();
          const std::vector<at::Tensor> gradients = gradients_of(actual);
          for (std::size_t i = 0; i < gradients.size(); ++i) {
            EXPECT_LT(largest_difference(gradients[i], gradients_of(expected)[i]), tolerance)
                << rows.size() << " pieces, " << key_heads << " key heads, tensor " << i;
          }
        }
      }
    }
  }
}

TEST(ChunkAttention, TakesGradientsThatAreNotContiguous) {
  const Pieces expected = make_pieces({3, 4}, 2, at::kFloat);
  naive(expected).sum().backward();
  const Pieces actual = make_pieces({3, 4}, 2, at::kFloat);
  chunk_attention(actual.query, actual.keys, actual.values).sum().backward();
  EXPECT_LT(largest_difference(actual.query.grad(), expected.query.grad()), 1e-6);
  EXPECT_LT(largest_difference(actual.keys[0].grad(), expected.keys[0].grad()), 1e-6);
}

TEST(ChunkAttention, RefusesPiecesWithoutTheChunksOwn) {
  const Pieces pieces = make_pieces({3, 4}, 2, at::kFloat);
  EXPECT_THROW((void)chunk_attention(pieces.query, {&pieces.keys[0], 1}, {&pieces.values[0], 1}),
               InternalError);
}

// A sample of 5 + 4 + 3 rows beside a whole one of 2, as graphs of their own.
class PackedAttention : public testing::Test {
 protected:
  static constexpr std::int64_t kRows = 12;

  at::Tensor leaf(const std::string& name, std::int64_t heads) const {
    return random_tensor({kRows, heads, kHeadDim}, name).set_requires_grad(true);
  }

  const at::Tensor query_ = leaf("query", kHeads);
  const at::Tensor key_ = leaf("key", 2);
  const at::Tensor value_ = leaf("value", 2);
  const at::Tensor weights_ = random_tensor({kRows, kHeads* kHeadDim}, "weights");
};

TEST_F(PackedAttention, ChunksGiveTheResultsAndGradientsOfTheWholeSample) {
  const std::vector<std::int64_t> whole = {kRows};
  const at::Tensor expected = segment_attention(query_, key_, value_, whole, true);
  (expected * weights_).sum().backward();
  std::vector<at::Tensor> leaves;  // query, key, value of every chunk
  std::vector<at::Tensor> outputs;
  std::vector<ChunkKeyValuesPtr> kept;
  const at::Tensor other = random_tensor({2, kHeads, kHeadDim}, "other");
  std::int64_t begin = 0;
  for (const std::int64_t rows : {5, 4, 3}) {
    PackedItem item{rows, begin, kept, nullptr};
    if (begin + rows < kRows) {
      item.own = std::make_shared<ChunkKeyValues>();
      item.own->takes_gradients = true;
      kept.push_back(item.own);
    }
    const auto packed = [&](const at::Tensor& of_sample) {
      leaves.push_back(of_sample.detach().narrow(0, begin, rows).clone().set_requires_grad(true));
      return at::cat({other.narrow(1, 0, of_sample.size(1)), leaves.back() * 1});
    };
    const at::Tensor query = packed(query_);
    const at::Tensor key = packed(key_);
    const at::Tensor value = packed(value_);
    const std::vector<PackedItem> items = {{.rows = 2}, item};
    const at::Tensor attended = packed_attention(query, key, value, items, 0);
    EXPECT_LT(largest_difference(attended.narrow(0, 2, rows), expected.narrow(0, begin, rows)),
              1e-12);
    outputs.push_back((attended.narrow(0, 2, rows) * weights_.narrow(0, begin, rows)).sum());
    begin += rows;
  }
  for (std::size_t chunk = outputs.size(); chunk-- > 0;) {
    outputs[chunk].backward();
  }
  const auto joined = [&](std::size_t which) {
    return at::cat({leaves[which].grad(), leaves[3 + which].grad(), leaves[6 + which].grad()});
  };
  EXPECT_LT(largest_difference(joined(0), query_.grad()), 1e-12);
  EXPECT_LT(largest_difference(joined(1), key_.grad()), 1e-12);
  EXPECT_LT(largest_difference(joined(2), value_.grad()), 1e-12);
  EXPECT_FALSE(kept[0]->keys[0].grad().defined()) << "a gradient that was taken is kept";
}

TEST_F(PackedAttention, ASecondForwardOfALayerKeepsWhatTheFirstKept) {
  PackedItem item{kRows, 0, {}, std::make_shared<ChunkKeyValues>()};
  const std::vector<PackedItem> items = {item};
  packed_attention(query_, key_, value_, items, 0);
  const at::Tensor kept = item.own->keys.at(0);
  EXPECT_FALSE(kept.requires_grad());
  packed_attention(query_, key_, value_, items, 0);
  EXPECT_EQ(item.own->keys.size(), 1U);
  EXPECT_TRUE(item.own->keys[0].is_same(kept));
  EXPECT_THROW((void)packed_attention(query_, key_, value_, items, 2), InternalError);
}

}  // namespace
}  // namespace entrain::engine
