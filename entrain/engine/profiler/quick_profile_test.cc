#include "entrain/engine/profiler/quick_profile.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "entrain/engine/profiler/fit.h"

namespace entrain::engine {
namespace {

ModelSpec small_model() {
  ModelSpec model;
  model.name = "small";
  EncoderSpec encoder;
  encoder.name = "vision";
  encoder.num_layers = 2;
  encoder.hidden = 32;
  encoder.num_heads = 2;
  encoder.intermediate = 64;
  encoder.patch_size = 4;
  encoder.merge_size = 2;
  encoder.frozen = true;  // what is frozen must not change what is measured
  model.encoders.push_back(encoder);
  model.llm.num_layers = 2;
  model.llm.hidden = 48;
  model.llm.num_heads = 4;
  model.llm.num_kv_heads = 2;
  model.llm.head_dim = 12;
  model.llm.intermediate = 96;
  model.llm.vocab_size = 300;
  return model;
}

// Validity alone: what the numbers are is the machine's affair.
TEST(QuickProfile, IsValidAndGrowsWithWork) {
  const ModelSpec model = small_model();
  QuickProfileOptions options;
  options.max_tokens = 256;
  options.repeats = 3;
  options.command = "test";
  const int threads = at::get_num_threads();
  const Profile profile = quick_profile(model, options);
  EXPECT_EQ(at::get_num_threads(), threads);
  validate(profile, model, "profile");
  EXPECT_EQ(profile.source, "measured");
  EXPECT_EQ(profile.command, "test");
  EXPECT_EQ(profile.threads, 1);
  EXPECT_EQ(profile.layers.size(), 6U);
  for (const LayerProfile& layer : profile.layers) {
    SCOPED_TRACE(name_of(layer.kind));
    for (const CostCurve& curve : {layer.forward, layer.backward_input}) {
      EXPECT_GT(predict(curve, 256 * 256, 256), 0);
      EXPECT_GE(predict(curve, 4096.0 * 4096, 4096), predict(curve, 0, 1));
    }
    EXPECT_GE(predict(layer.backward_weight, 0, 256), 0);
    EXPECT_EQ(layer.backward_weight.per_pair_ns, 0);
  }
  const LayerProfile& decoder = find_layer(profile, "llm", LayerKind::kDecoder);
  EXPECT_GT(predict(decoder.backward_weight, 0, 256), 0);
}

// Against a count by hand of what a decoder layer saves per token: the inputs of both norms (h
// each) and of the matrices behind them (h each), rotated queries and keys, values, attention's
// result (twice where segments are joined), the MLP's gate, its activation, up and their product (i
// each).
TEST(QuickProfile, CountsActivationBytes) {
  const ModelSpec model = small_model();
  QuickProfileOptions options;
  options.max_tokens = 512;
  options.repeats = 3;
  const Profile profile = quick_profile(model, options);
  const LlmSpec& llm = model.llm;
  const double query = llm.num_heads * llm.head_dim;
  const double key = llm.num_kv_heads * llm.head_dim;
  const double numbers = 4.0 * llm.hidden + 3 * query + 2 * key + 4.0 * llm.intermediate;
  const double measured =
      find_layer(profile, "llm", LayerKind::kDecoder).activation_bytes_per_token;
  EXPECT_NEAR(measured / (4 * numbers), 1, 0.15);
}

TEST(QuickProfile, RefusesOptionsOutOfRange) {
  QuickProfileOptions options;
  options.max_tokens = 8;
  EXPECT_THROW(quick_profile(small_model(), options), InvalidInput);
  options = {};
  options.repeats = 2;
  EXPECT_THROW(quick_profile(small_model(), options), InvalidInput);
  options = {};
  options.seconds = 0;
  EXPECT_THROW(quick_profile(small_model(), options), InvalidInput);
}

}  // namespace
}  // namespace entrain::engine
