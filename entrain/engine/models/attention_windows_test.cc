#include "entrain/engine/models/attention_windows.h"

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

struct Patch {
  std::int64_t segment = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

// In the order of merge blocks.
std::vector<Patch> patches_of(const std::vector<SegmentGrid>& segments, std::int64_t merge_size) {
  std::vector<Patch> patches;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    for (std::int64_t row = 0; row < segments[s].rows; row += merge_size) {
      for (std::int64_t column = 0; column < segments[s].columns; column += merge_size) {
        for (std::int64_t i = 0; i < merge_size * merge_size; ++i) {
          patches.push_back(
              {static_cast<std::int64_t>(s), row + i / merge_size, column + i % merge_size});
        }
      }
    }
  }
  return patches;
}

// Attention over all rows, with everything outside a patch's window masked.
at::Tensor masked_attention(const at::Tensor& query,
                            const at::Tensor& key,
                            const at::Tensor& value,
                            const std::vector<Patch>& patches,
                            std::int64_t window) {
  const auto tokens = std::ssize(patches);
  at::Tensor mask = at::zeros({tokens, tokens}, at::kBool);
  for (std::int64_t i = 0; i < tokens; ++i) {
    for (std::int64_t j = 0; j < tokens; ++j) {
      const Patch& a = patches[static_cast<std::size_t>(i)];
      const Patch& b = patches[static_cast<std::size_t>(j)];
      mask[i][j] = a.segment == b.segment && a.row / window == b.row / window &&
                   a.column / window == b.column / window;
    }
  }
  const auto heads_first = [](const at::Tensor& rows) { return rows.transpose(0, 1); };
  const at::Tensor scores = at::matmul(heads_first(query), heads_first(key).transpose(1, 2)) /
                            std::sqrt(static_cast<double>(query.size(2)));
  const at::Tensor weights = at::softmax(scores.masked_fill(mask.logical_not(), -1e30), -1);
  return at::matmul(weights, heads_first(value)).transpose(0, 1).flatten(1);
}

void expect_masked(const std::vector<SegmentGrid>& segments,
                   std::int64_t merge_size,
                   std::int64_t window,
                   std::int64_t whole) {
  const std::vector<Patch> patches = patches_of(segments, merge_size);
  const AttentionWindows windows = attention_windows(segments, merge_size, window, at::kCPU);
  EXPECT_EQ(windows.whole, whole);
  at::manual_seed(3);
  std::vector<at::Tensor> inputs;
  for (int i = 0; i < 3; ++i) {
    inputs.push_back(at::randn({std::ssize(patches), 3, 8}, at::kDouble).requires_grad_());
  }
  const at::Tensor actual = window_attention(inputs[0], inputs[1], inputs[2], windows);
  const at::Tensor expected = masked_attention(inputs[0], inputs[1], inputs[2], patches, window);
  EXPECT_TRUE(at::allclose(actual, expected, 1e-10, 1e-12));
  const at::Tensor direction = at::randn_like(expected).detach();
  (actual * direction).sum().backward();
  std::vector<at::Tensor> gradients;
  for (at::Tensor& input : inputs) {
    gradients.push_back(input.grad().clone());
    input.mutable_grad().reset();
  }
  (expected * direction).sum().backward();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(at::allclose(gradients[i], inputs[i].grad(), 1e-10, 1e-12)) << "input " << i;
  }
}

TEST(WindowAttention, IsAttentionMaskedToWindows) {
  expect_masked({{4, 4}}, 2, 4, 1);                  // one whole window
  expect_masked({{10, 6}}, 2, 4, 2);                 // two whole ones, edges on both sides
  expect_masked({{2, 2}}, 2, 8, 0);                  // smaller than a window
  expect_masked({{8, 8}, {2, 6}, {6, 8}}, 2, 4, 6);  // several segments
  expect_masked({{6, 3}, {3, 3}}, 3, 3, 3);          // a window is a merge block
  expect_masked({{5, 7}}, 1, 2, 6);                  // nothing merges
}

}  // namespace
}  // namespace entrain::engine
