#include "entrain/engine/profiler/background_load.h"

#include <atomic>
#include <thread>

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

// A lane of three layers; `passes` counts its forwards, `gradients` its backwards.
LayerCases lane(std::atomic<int>& passes, std::atomic<int>& gradients) {
  LayerCases cases;
  const at::Tensor weight = at::ones({4});
  cases.layers.assign(3, {{"weight", weight}});
  LayerCase layer_case;
  layer_case.input = at::ones({2, 4});
  layer_case.forward = [weight, input = layer_case.input, &passes, &gradients](int) {
    ++passes;
    const at::Tensor output = input * weight;
    output.register_hook([&gradients](const at::Tensor& gradient) {
      ++gradients;
      return gradient;
    });
    return output;
  };
  cases.cases.push_back(layer_case);
  return cases;
}

TEST(BackgroundLoad, RunEveryLaneUntilTheyAreStopped) {
  std::atomic<int> passes[2] = {0, 0};
  std::atomic<int> gradients[2] = {0, 0};
  {
    std::vector<LayerCases> lanes;
    lanes.push_back(lane(passes[0], gradients[0]));
    lanes.push_back(lane(passes[1], gradients[1]));
    const BackgroundLoad load(lanes);
    while (gradients[0] < 7 || gradients[1] < 7 || load.passes() < 14) {
      std::this_thread::yield();
    }
  }
  const int stopped = passes[0] + passes[1];
  std::this_thread::yield();
  EXPECT_EQ(passes[0] + passes[1], stopped);
}

TEST(BackgroundLoad, NoLanesRunNothing) {
  const BackgroundLoad load({});
  EXPECT_EQ(load.passes(), 0);
}

}  // namespace
}  // namespace entrain::engine
