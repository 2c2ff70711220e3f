#include "entrain/engine/profiler/profile_run.h"

#include <algorithm>
#include <filesystem>

#include <ATen/Parallel.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"

#include "entrain/engine/profiler/fit.h"
#include "entrain/engine/profiler/measure_layer.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

ModelSpec frozen_encoder_model() {
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

ProfileOptions few_repeats(std::int64_t max_tokens) {
  ProfileOptions options = quick_options(max_tokens);
  options.repeats = 3;
  return options;
}

// Validity alone: what the numbers are is the machine's affair.
TEST(MeasureProfile, IsValidAndGrowsWithWork) {
  const ModelSpec model = frozen_encoder_model();
  ProfileOptions options = few_repeats(256);
  options.command = "test";
  const int threads = at::get_num_threads();
  const Profile profile = measure_profile(model, options).profile;
  EXPECT_EQ(at::get_num_threads(), threads);
  validate(profile, model, "profile");
  EXPECT_EQ(profile.source, "measured");
  EXPECT_EQ(profile.command, "test");
  EXPECT_EQ(profile.threads, 1);
  EXPECT_NE(profile.software.find("torch 2."), std::string::npos);
  EXPECT_EQ(profile.layers.size(), 6U);
  for (const LayerProfile& layer : profile.layers) {
    SCOPED_TRACE(name_of(layer.kind));
    for (const CostCurve& curve : {layer.forward, layer.backward_input}) {
      EXPECT_GT(predict(curve, 256 * 256, 256), 0);
      EXPECT_GE(predict(curve, 4096.0 * 4096, 4096), predict(curve, 0, 1));
    }
    EXPECT_GE(predict(layer.backward_weight, 0, 256), 0);
    EXPECT_EQ(layer.backward_weight.per_pair_ns, 0);
    EXPECT_NEAR(layer.range.most_tokens, 256, 10);
    EXPECT_GT(layer.parameter_bytes, 0);
    EXPECT_EQ(layer.optimizer_bytes, 2 * layer.parameter_bytes) << "two moments of fp32 weights";
    EXPECT_EQ(layer.recompute.per_token_ns, 0) << "not measured quickly";
  }
  const LayerProfile& decoder = find_layer(profile, "llm", LayerKind::kDecoder);
  EXPECT_GT(predict(decoder.backward_weight, 0, 256), 0);
  EXPECT_EQ(decoder.range.most_pairs, 256 * 256 / 2);
}

// Against a count by hand of what a decoder layer saves per token: the inputs of both norms (h
// each) and of the matrices behind them (h each), rotated queries and keys, values, attention's
// result (twice where segments are joined), the MLP's gate, its activation, up and their product (i
// each).
TEST(MeasureProfile, CountsActivationBytes) {
  const ModelSpec model = frozen_encoder_model();
  const Profile profile = measure_profile(model, few_repeats(512)).profile;
  const LlmSpec& llm = model.llm;
  const double query = llm.num_heads * llm.head_dim;
  const double key = llm.num_kv_heads * llm.head_dim;
  const double numbers = 4.0 * llm.hidden + 3 * query + 2 * key + 4.0 * llm.intermediate;
  const double measured =
      find_layer(profile, "llm", LayerKind::kDecoder).activation_bytes_per_token;
  EXPECT_NEAR(measured / (4 * numbers), 1, 0.15);
}

TEST(MeasureProfile, FullMeasuresRecomputationAndSlices) {
  const ModelSpec model = frozen_encoder_model();
  ProfileOptions options = full_options(256);
  EXPECT_EQ(options.grid.tokens, (std::vector<std::int64_t>{64, 128, 256}));
  options.repeats = 3;
  options.tensor_parallel = {1, 2, 4};  // 4 divides neither the encoder's nor the key heads
  const ProfileRun run = measure_profile(model, options);
  ASSERT_EQ(run.profile.layers.size(), 12U);
  double parameters = 0;
  double slices = 0;
  for (const LayerProfile& layer : run.profile.layers) {
    EXPECT_GT(predict(layer.recompute, 0, 256), 0) << name_of(layer.kind);
    if (layer.kind == LayerKind::kDecoder) {
      (layer.tensor_parallel == 1 ? parameters : slices) += layer.parameter_bytes;
    }
    if (layer.tensor_parallel == 2 && layer.kind == LayerKind::kDecoder) {
      EXPECT_GE(layer.forward.per_launch_ns,
                4 * static_cast<double>(run.profile.link.latency.count()) - 1)
          << "two all-reduces of two hops";
    }
  }
  // Both norms are whole on every rank.
  EXPECT_EQ(slices, (parameters - 8.0 * model.llm.hidden) / 2 + 8.0 * model.llm.hidden);
}

TEST(MeasureProfile, MeasuresBfloat16) {
  ProfileOptions options = few_repeats(64);
  options.dtype = "bfloat16";
  const Profile profile = measure_profile(frozen_encoder_model(), options).profile;
  EXPECT_EQ(profile.dtype, "bfloat16");
  for (const LayerProfile& layer : profile.layers) {
    EXPECT_DOUBLE_EQ(layer.optimizer_bytes, 6 * layer.parameter_bytes)
        << "two moments and a master copy in float32 beside two bytes a weight";
  }
}

// A clock whose seconds grow: what a pass "takes" says when it ran.
TEST(MeasureProfile, LayersTakeTurns) {
  ProfileOptions options = few_repeats(64);
  double readings = 0;
  options.clock = [&] {
    ++readings;
    return readings * readings;
  };
  const ProfileRun run = measure_profile(frozen_encoder_model(), options);
  double begun = 0;      // when the last layer did
  double ended = 1e300;  // when the first one did
  for (const MeasuredLayer& layer : run.points.layers) {
    const std::vector<double>& passes = layer.points.front().forward;
    ASSERT_EQ(passes.size(), 3U);
    EXPECT_LT(passes[0], passes[1]);
    begun = std::max(begun, passes.front());
    ended = std::min(ended, passes.back());
  }
  EXPECT_LT(begun, ended) << "one had all its rounds before another had any";
}

TEST(MeasureProfile, GoesOnWhereAnEarlierRunStood) {
  const oracle::TemporaryFolder folder;
  const ModelSpec model = frozen_encoder_model();
  ProfileOptions options = few_repeats(64);
  options.partial = folder.path() / "p.partial.json";
  const ProfileRun first = measure_profile(model, options);
  ASSERT_TRUE(std::filesystem::exists(options.partial));
  // As if it had been killed in its third layer.
  MeasuredPoints points = points_from_json(read_json_file(options.partial), "partial");
  EXPECT_EQ(points.layers.size(), 6U);
  points.layers.resize(3);
  points.layers[2].complete = false;
  points.layers[0].points[0].forward = {111, 222, 333};
  points.layers[0].points[0].backward = points.layers[0].points[0].forward;
  points.layers[0].points[0].backward_input = points.layers[0].points[0].forward;
  const std::vector<double> kept = points.layers[2].points[0].forward;
  write_file(options.partial, to_json(points).dump());
  const ProfileRun second = measure_profile(model, options);
  ASSERT_EQ(second.points.layers.size(), 6U);
  EXPECT_EQ(second.points.layers[0].points[0].forward, (std::vector<double>{111, 222, 333}));
  EXPECT_EQ(second.points.layers[2].points[0].forward, kept) << "three repeats were there already";
  EXPECT_EQ(second.profile.layers.size(), 6U);

  options.grid.tokens.back() *= 2;
  const std::string message = error_of<InvalidInput>([&] { measure_profile(model, options); });
  EXPECT_NE(message.find("p.partial.json' holds the points of an unfinished profile"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("tokens"), std::string::npos) << message;
}

TEST(MeasureProfile, LeavesOutWhatTheBudgetForbidsAndSaysSo) {
  ProfileOptions options = few_repeats(4096);
  options.seconds = 1e-6;
  const ProfileRun hurried = measure_profile(frozen_encoder_model(), options);
  for (const MeasuredLayer& layer : hurried.points.layers) {
    EXPECT_EQ(layer.points.size(), 2U);
    EXPECT_FALSE(layer.skipped.empty());
    EXPECT_NE(layer.skipped.front().find("more time than is left"), std::string::npos);
  }
  options.seconds = 60;
  options.memory_bytes = 1 << 20;
  const ProfileRun small = measure_profile(frozen_encoder_model(), options);
  const MeasuredLayer& decoder = small.points.layers[4];
  ASSERT_FALSE(decoder.skipped.empty());
  EXPECT_NE(decoder.skipped.back().find("more activation bytes than allowed"), std::string::npos);
  EXPECT_LT(small.profile.layers[4].range.most_tokens, 4096);
}

TEST(MeasureProfile, RefusesOptionsOutOfRange) {
  const auto refuses = [](auto change) {
    ProfileOptions options = quick_options(64);
    change(options);
    EXPECT_THROW(measure_profile(frozen_encoder_model(), options), InvalidInput);
  };
  refuses([](ProfileOptions& options) { options.grid.tokens = {8}; });
  refuses([](ProfileOptions& options) { options.repeats = 2; });
  refuses([](ProfileOptions& options) { options.seconds = 0; });
  refuses([](ProfileOptions& options) { options.dtype = "int8"; });
  refuses([](ProfileOptions& options) { options.device = "abacus"; });
  refuses([](ProfileOptions& options) { options.tensor_parallel = {0}; });
}

TEST(MeasureProfile, CudaIsMeasuredWhereItIs) {
  ProfileOptions options = few_repeats(64);
  options.device = "cuda";
  const bool built = c10::impl::hasDeviceGuardImpl(at::kCUDA);
  if (!built || at::getNumGPUs() == 0) {
    const char* reason = built ? "finds none on this machine" : "was built without it";
    EXPECT_NE(error_of<SystemFailure>([&] {
                measure_profile(frozen_encoder_model(), options);
              }).find(reason),
              std::string::npos);
    GTEST_SKIP() << "no GPU: torch " << reason;
  }
  EXPECT_EQ(measure_profile(frozen_encoder_model(), options).profile.device, "cuda");
}

}  // namespace
}  // namespace entrain::engine
