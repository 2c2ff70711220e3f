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
    cases.layers.push_back({{"weight", weight_}});
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      LayerCase layer_case;
      layer_case.tokens = static_cast<double>(sizes[i]);
      layer_case.input = at::ones({sizes[i], kNumbers});
      layer_case.forward = [this, i, input = layer_case.input](int) {
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
    budget.clock = clock;
    MeasuredLayer layer;
    LayerMeasurement measurement(cases, budget, at::kCPU, layer, [] {});
    measurement.run_round();
    notes.clear();  // what went before: warming up, the first round
    while (measurement.wants_more()) {
      measurement.run_round();
    }
    return layer;
  }

  LayerCases cases;
  std::string notes;
  NanosecondClock clock;  // empty: the stopwatch's own

 private:
  at::Tensor weight_;
};

// A round is, of every point, a pass with trainable weights, one in halves and one with frozen
// ones.
std::string rounds_of(const std::vector<std::string>& points) {
  std::string round;
  for (const std::string& point : points) {
    round += point + point + point;
  }
  std::string all;
  for (int i = 0; i < kLeastRepeats - 1; ++i) {
    all += round;
  }
  return all;
}

TEST(MeasureLayer, ARepeatRunsAStageOfLayers) {
  NotedLayer layer({4, 8});
  layer.cases.num_alike = 3;
  const MeasuredLayer measured = layer.measure(0);
  EXPECT_EQ(layer.notes, rounds_of({"aaaAAA", "bbbBBB"}));
  ASSERT_EQ(measured.points.size(), 2U);
  for (const MeasuredPoint& point : measured.points) {
    EXPECT_EQ(point.forward.size(), static_cast<std::size_t>(kLeastRepeats));
    EXPECT_EQ(point.backward.size(), static_cast<std::size_t>(kLeastRepeats));
    EXPECT_EQ(point.backward_input.size(), static_cast<std::size_t>(kLeastRepeats));
  }
}

// A clock that advances by one second a reading: a pass takes one second, whatever their number.
TEST(MeasureLayer, ATimeIsALayersMean) {
  for (const int num_alike : {1, 2, 5}) {
    NotedLayer layer({4, 8});
    layer.cases.num_alike = num_alike;
    double seconds = 0;
    layer.clock = [&] { return 1e9 * seconds++; };
    const MeasuredLayer measured = layer.measure(0);
    for (const MeasuredPoint& point : measured.points) {
      EXPECT_EQ(point.forward, std::vector<double>(kLeastRepeats, 1e9));
      EXPECT_EQ(point.backward, std::vector<double>(kLeastRepeats, 1e9));
      EXPECT_EQ(point.backward_input, std::vector<double>(kLeastRepeats, 1e9));
      // All weight gradients of a stage are one more reading.
      EXPECT_EQ(point.backward_halves,
                std::vector<double>(kLeastRepeats, (num_alike + 1) * 1e9 / num_alike));
    }
  }
}

TEST(MeasureLayer, DeepModelsAreImitatedByEightLayers) {
  NotedLayer layer({4, 8});
  layer.cases.num_alike = 100;
  layer.measure(0);
  EXPECT_EQ(layer.notes, rounds_of({"aaaaaaaaAAAAAAAA", "bbbbbbbbBBBBBBBB"}));
}

// Of four sizes the largest does not fit.
TEST(MeasureLayer, SizesThatAreLeftOutAreNamedOnceByRisingSize) {
  NotedLayer layer({4, 8, 16, 64});
  const double kept = NotedLayer({4}).measure(0).activation_bytes_per_token;
  const MeasuredLayer measured = layer.measure(static_cast<std::int64_t>(2 * 16 * kept));
  ASSERT_EQ(measured.points.size(), 3U);
  for (std::size_t i = 1; i < measured.points.size(); ++i) {
    EXPECT_LT(measured.points[i - 1].tokens, measured.points[i].tokens);
  }
  ASSERT_EQ(measured.skipped.size(), 1U);
  EXPECT_NE(measured.skipped[0].find("64 tokens, segments 1: more activation bytes"),
            std::string::npos);
}

// Warming up visits every second size first.
TEST(MeasureLayer, ReachesFarBeforeItFillsUp) {
  NotedLayer layer({4, 8, 16, 32, 64});
  LayerBudget budget;
  budget.repeats = kLeastRepeats;
  budget.seconds = 1e6;
  budget.recompute = false;
  MeasuredLayer measured;
  const LayerMeasurement measurement(layer.cases, budget, at::kCPU, measured, [] {});
  std::string firsts;
  for (const char note : layer.notes) {
    if (firsts.find(note) == std::string::npos && note >= 'a') {
      firsts += note;
    }
  }
  EXPECT_EQ(firsts, "acebd");
}

// What the larger point keeps, with its gradients, just fits; the smaller one fits four times.
TEST(MeasureLayer, LayersKeepToTheMemory) {
  NotedLayer layer({4, 16});
  const double kept = NotedLayer({4}).measure(0).activation_bytes_per_token;
  ASSERT_GT(kept, 0);
  layer.cases.num_alike = 8;
  layer.measure(static_cast<std::int64_t>(2 * 16 * kept));
  EXPECT_EQ(layer.notes, rounds_of({"aaaaAAAA", "bB"}));
}

}  // namespace
}  // namespace entrain::engine
