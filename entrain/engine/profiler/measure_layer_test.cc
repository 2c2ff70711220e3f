#include "entrain/engine/profiler/measure_layer.h"

#include <string>
#include <vector>

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

// A layer that notes its passes: 'a', 'b', … forward, 'A', 'B', … backward.
class NotedLayer {
 public:
  static constexpr std::int64_t kNumbers = 1 << 10;  // a token

  explicit NotedLayer(const std::vector<std::int64_t>& sizes) {
    weight_ = at::ones({kNumbers});
    cases.module = "vision";
    cases.kind = LayerKind::kEncoderTransformer;
    cases.parameters.push_back({"weight", weight_});
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      LayerCase layer_case;
      layer_case.tokens = static_cast<double>(sizes[i]);
      layer_case.input = at::ones({sizes[i], kNumbers});
      layer_case.forward = [this, i, input = layer_case.input] {
        notes += static_cast<char>('a' + i);
        const at::Tensor output = (input * weight_).exp();
        if (output.requires_grad()) {
          output.register_hook([this, i](const at::Tensor& gradient) {
            notes += static_cast<char>('A' + i);
            return gradient;
          });
        }
        return output;
      };
      cases.cases.push_back(layer_case);
    }
  }

  MeasuredLayer measure(std::int64_t memory_bytes) {
    LayerBudget budget;
    budget.repeats = kLeastRepeats;
    budget.seconds = 1e6;
    budget.memory_bytes = memory_bytes;
    budget.recompute = false;
    MeasuredLayer layer;
    int rounds = 0;
    measure_layer(
        cases,
        budget,
        at::kCPU,
        layer,
        [] {},
        [&] {
          if (rounds++ == 0) {
            notes.clear();  // what went before: warming up, the first round
          }
        });
    return layer;
  }

  LayerCases cases;
  std::string notes;

 private:
  at::Tensor weight_;
};

// A round is a pass with trainable weights and one with frozen ones.
std::string rounds_of(const std::string& pass) {
  const int rounds = kLeastRepeats - 1;
  std::string all;
  for (int i = 0; i < 2 * rounds; ++i) {
    all += pass;
  }
  return all;
}

TEST(MeasureLayer, PointsFlyTogether) {
  NotedLayer layer({4, 8, 16});
  const MeasuredLayer measured = layer.measure(0);
  const std::string rounds = rounds_of("abcABC");
  EXPECT_EQ(layer.notes, rounds);
  ASSERT_EQ(measured.points.size(), 3U);
  for (const MeasuredPoint& point : measured.points) {
    EXPECT_EQ(point.forward.size(), static_cast<std::size_t>(kLeastRepeats));
    EXPECT_EQ(point.backward.size(), static_cast<std::size_t>(kLeastRepeats));
    EXPECT_EQ(point.backward_input.size(), static_cast<std::size_t>(kLeastRepeats));
  }
}

// What the largest point keeps, with its gradients, just fits; the others fit together.
TEST(MeasureLayer, AFlightKeepsToTheMemory) {
  NotedLayer layer({4, 8, 16});
  const double kept = NotedLayer({1}).measure(0).activation_bytes_per_token;
  ASSERT_GT(kept, 0);
  layer.measure(static_cast<std::int64_t>(2 * 16 * kept));
  std::string expected;
  for (int i = 0; i < kLeastRepeats - 1; ++i) {
    expected += "abABabABcCcC";
  }
  EXPECT_EQ(layer.notes, expected);
}

// 256 MiB are enough for what no cache holds: a flight ends with the point that exceeds them.
TEST(MeasureLayer, AFlightEndsWhereNoCacheHoldsItsBytes) {
  const double kept = NotedLayer({1}).measure(0).activation_bytes_per_token;
  const auto tokens = static_cast<std::int64_t>(256.0 * (1 << 20) / kept) + 1;
  NotedLayer layer({4, tokens, tokens});
  layer.measure(0);
  std::string expected;
  for (int i = 0; i < kLeastRepeats - 1; ++i) {
    expected += "abABabABcCcC";
  }
  EXPECT_EQ(layer.notes, expected);
}

}  // namespace
}  // namespace entrain::engine
