#include "entrain/engine/pipeline/shapes.h"

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

TEST(OutputShape, FollowsFromSizesAlone) {
  ModelSpec model;
  model.encoders.resize(1);
  model.encoders[0].hidden = 16;
  model.llm.hidden = 24;
  Program program;
  program.num_stages = {2, 2};
  StepCosts costs;
  costs.work.own().resize(2);
  SegmentWork segment;
  segment.tokens = 8;
  segment.llm_tokens = 2;
  costs.work[0].segments = {{segment, segment}};
  costs.work[0].llm_tokens = 11;
  costs.work[1].segments = {{}};
  costs.work[1].llm_tokens = 5;
  costs.modules.resize(2);
  for (ModuleCosts& module : costs.modules) {
    module.stages.resize(2);
  }
  costs.modules[0].stages[0].output_width = 16;
  costs.modules[0].stages[1].output_width = 24;
  costs.modules[1].stages[0].output_width = 48;  // DeepStack's features go with the hidden states
  costs.modules[1].stages[1].output_width = 24;
  const StepSizes sizes{model, program, costs};
  Group images;
  images.items = {{0, 0}, {0, 1}};
  Group samples;
  samples.items = {{0}, {1}};
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(output_shape(sizes, {0, 0, 0, 0}, images), (Shape{16, 16}));
  EXPECT_EQ(output_shape(sizes, {0, 1, 0, 0}, images), (Shape{4, 24}));
  EXPECT_EQ(output_shape(sizes, {1, 0, 0, 0}, samples), (Shape{16, 48}));
  EXPECT_EQ(output_shape(sizes, {1, 1, 0, 0}, samples), (Shape{16, 24}));
}

}  // namespace
}  // namespace entrain::engine
