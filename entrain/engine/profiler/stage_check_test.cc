#include "entrain/engine/profiler/stage_check.h"

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

#include "entrain/engine/profiler/profile_run.h"

#include "tests/oracle/case_count.h"

namespace entrain::engine {
namespace {

// The demo's model.
ModelSpec demo_model() {
  ModelSpec model;
  model.name = "demo";
  EncoderSpec encoder;
  encoder.name = "vision";
  encoder.num_layers = 2;
  encoder.hidden = 128;
  encoder.num_heads = 4;
  encoder.intermediate = 320;
  encoder.min_pixels = 784;
  encoder.max_pixels = 40000;
  model.encoders = {encoder};
  model.llm.num_layers = 2;
  model.llm.hidden = 160;
  model.llm.num_heads = 4;
  model.llm.num_kv_heads = 2;
  model.llm.head_dim = 40;
  model.llm.intermediate = 480;
  model.llm.vocab_size = 264;
  return model;
}

// Samples of sizes that no profile measures: images of many shapes, or none, and text.
std::vector<std::vector<SampleWork>> slots_of(const ModelSpec& model, int num_slots) {
  Rng rng(5);
  std::vector<std::vector<SampleWork>> slots(static_cast<std::size_t>(num_slots));
  for (std::vector<SampleWork>& slot : slots) {
    const std::uint64_t samples = 2 + rng.below(6);
    for (std::uint64_t s = 0; s < samples; ++s) {
      SampleSizes sizes;
      sizes.id = "s";
      for (std::uint64_t image = rng.below(3); image > 0; --image) {
        sizes.images.push_back(
            {static_cast<int>(60 + rng.below(140)), static_cast<int>(60 + rng.below(140))});
      }
      sizes.prompt_tokens = static_cast<std::int64_t>(20 + rng.below(120));
      sizes.response_tokens = static_cast<std::int64_t>(2 + rng.below(40));
      slot.push_back(sample_work(model, sizes));
    }
  }
  return slots;
}

// A clock that advances with the work that torch does on this thread, not with time: numbers
// written, attention's scores, and something an operation. The same on every machine, however busy.
class WorkClock {
 public:
  WorkClock() {
    work_ = 0;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(nullptr, &count)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~WorkClock() { at::removeCallback(handle_); }
  WorkClock(const WorkClock&) = delete;
  WorkClock& operator=(const WorkClock&) = delete;

  static double now() { return work_; }

 private:
  static void count(const at::RecordFunction& function, at::ObserverContext* /*context*/) {
    constexpr double kOfAnOperation = 100;
    work_ += kOfAnOperation;
    const bool attention =
        std::string(function.name()).find("flash_attention") != std::string::npos;
    for (const c10::IValue& output : function.outputs()) {
      if (!output.isTensor() || !output.toTensor().defined()) {
        continue;
      }
      const at::Tensor& tensor = output.toTensor();
      work_ += static_cast<double>(tensor.numel());
      if (attention && tensor.dim() == 4) {
        work_ += static_cast<double>(tensor.size(1) * tensor.size(2) * tensor.size(2));
      }
    }
  }

  static thread_local double work_;
  at::CallbackHandle handle_;
};
thread_local double WorkClock::work_ = 0;

// Fit and check are exact about what runs: every layer, its real lengths, its share of target
// tokens and features. What remains of error is the curve's own: it knows no number of segments,
// and a stage builds its rotary table once. How well profiles predict *time* is
// benchmarks/profile_fit.py's business.
TEST(CheckStages, AQuickProfilePredictsTheWorkOfWholeStages) {
  if (oracle::kSanitized) {
    GTEST_SKIP() << "what it runs, others here run as well";
  }
  const ModelSpec model = demo_model();
  const WorkClock clock;
  ProfileOptions options = quick_options(2048);
  options.repeats = 3;
  options.seconds = 600;  // no size is left out, however slow the machine
  options.clock = &WorkClock::now;
  const Profile profile = measure_profile(model, options).profile;
  for (const LayerProfile& layer : profile.layers) {
    EXPECT_EQ(layer.spread, 0) << "repeats do the same work";
    const bool attention =
        layer.kind == LayerKind::kEncoderTransformer || layer.kind == LayerKind::kDecoder;
    EXPECT_EQ(layer.forward.per_pair_ns > 0, attention) << name_of(layer.kind);
  }
  const auto slots = slots_of(model, 8);
  const std::vector<StageTime> times =
      check_stages(model, even_plan(model, {1, 2}, 1, 1), profile, slots, 1, &WorkClock::now);
  ASSERT_GT(times.size(), 16U) << "three stages; a slot of text is none of the encoder's";
  const std::vector<ErrorSummary> rows = summarise(model, times);
  ASSERT_EQ(rows.size(), 7U);
  EXPECT_EQ(rows.back().what, "all");
  EXPECT_EQ(rows.back().count, static_cast<int>(times.size()));
  for (const ErrorSummary& row : rows) {
    std::cout << row.what << ": median " << 100 * row.median << " %, worst " << 100 * row.worst
              << " %, bias " << 100 * row.bias << " %\n";
    EXPECT_LT(row.worst, 0.05);
  }
  EXPECT_LT(rows.back().median, 0.015);
  EXPECT_LT(rows.back().worst, 0.04);
}

TEST(CheckStages, MeasuresNoBackwardWhereNothingIsTrainable) {
  ModelSpec model = demo_model();
  model.encoders[0].frozen = true;
  model.encoders[0].projector_frozen = true;
  ProfileOptions options = quick_options(64);
  options.repeats = 3;
  options.seconds = 1;
  const Profile profile = measure_profile(model, options).profile;
  for (const StageTime& time :
       check_stages(model, even_plan(model, {2, 1}, 1, 1), profile, slots_of(model, 2), 1)) {
    EXPECT_GT(time.measured_forward, 0);
    EXPECT_EQ(time.measured_backward > 0, time.module == 1);
    EXPECT_EQ(time.predicted_backward > 0, time.module == 1);
  }
}

// A class token a tile, tiles in one segment; of sound the frames that a masked window's tokens
// see.
TEST(CheckStages, RunsEncodersWhoseInputHasOtherRowsThanTheirTokens) {
  ModelSpec tiled = demo_model();
  EncoderSpec& vision = tiled.encoders[0];
  vision.table_side = 4;
  vision.merge_size = 1;
  vision.class_token = true;
  vision.tiling.kind = TilingSpec::Kind::kAnyResolution;
  vision.tiling.canvases = {{1, 2}, {2, 1}, {2, 2}};
  ModelSpec heard = demo_model();
  EncoderSpec& audio = heard.encoders[0];
  audio.modality = Modality::kAudio;
  audio.window_seconds = 1.0;
  audio.masked_padding = audio.stored_positions = true;
  for (const ModelSpec& model : {tiled, heard}) {
    ProfileOptions options = quick_options(256);
    options.repeats = 3;
    options.seconds = 1;
    const Profile profile = measure_profile(model, options).profile;
    SampleSizes sizes;
    sizes.images = {{100, 60}};
    sizes.audio_seconds = {1.37};
    sizes.prompt_tokens = 20;
    sizes.response_tokens = 5;
    const std::vector<std::vector<SampleWork>> slots = {{sample_work(model, sizes)}};
    const auto times = check_stages(model, even_plan(model, {2, 1}, 1, 1), profile, slots, 1);
    ASSERT_EQ(times.size(), 3U);
    for (const StageTime& time : times) {
      EXPECT_GT(time.measured_forward, 0);
      EXPECT_GT(time.measured_backward, 0);
    }
  }
}

TEST(StageTime, ErrorIsThatOfBothDirectionsTogether) {
  StageTime time;
  time.measured_forward = 100;
  time.measured_backward = 200;
  time.predicted_forward = 120;
  time.predicted_backward = 150;
  EXPECT_DOUBLE_EQ(time.error(), -0.1);
}

}  // namespace
}  // namespace entrain::engine
