// A tiny vision-language step with synthetic content, run on thread ranks: for the executor's
// tests.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/schedule/schedule.h"

#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/pipeline/ranks.h"

#include "tests/oracle/random_cases.h"

namespace entrain::engine::tiny {

using oracle::FrozenPattern;
using std::chrono::seconds;

inline constexpr int kPatchSize = 4;

inline ModelSpec tiny_model(FrozenPattern frozen = FrozenPattern::kNone) {
  ModelSpec model;
  model.name = "tiny";
  EncoderSpec vision;
  vision.name = "vision";
  vision.num_layers = 2;
  vision.hidden = 16;
  vision.num_heads = 2;
  vision.intermediate = 24;
  vision.patch_size = kPatchSize;
  model.encoders = {vision};
  model.llm.num_layers = 3;
  model.llm.hidden = 24;
  model.llm.num_heads = 2;
  model.llm.num_kv_heads = 1;
  model.llm.head_dim = 12;
  model.llm.intermediate = 32;
  model.llm.vocab_size = 40;
  oracle::freeze(frozen, model);
  return model;
}

// A sample of some images (rows × columns in merge blocks) and text around them.
inline SampleWork sample_of(const std::vector<std::pair<int, int>>& images, int text, int targets) {
  SampleWork work;
  work.segments.resize(1);
  work.llm_tokens = text;
  work.target_tokens = targets;
  for (const auto& [rows, columns] : images) {
    SegmentWork segment;
    segment.rows = 2 * rows;
    segment.columns = 2 * columns;
    segment.tokens = segment.rows * segment.columns;
    segment.attention_pairs = segment.tokens * segment.tokens;
    segment.llm_tokens = segment.tokens / 4;
    work.llm_tokens += segment.llm_tokens;
    work.segments[0].push_back(segment);
  }
  work.llm_attention_pairs = work.llm_tokens * work.llm_tokens / 2;
  return work;
}

inline std::vector<SampleWork> tiny_batch() {
  return {sample_of({{1, 2}}, 9, 4),
          sample_of({}, 12, 5),
          sample_of({{2, 2}, {1, 1}, {1, 3}}, 8, 3),
          sample_of({{1, 1}}, 7, 2),
          sample_of({{2, 1}, {1, 2}}, 10, 6),
          sample_of({}, 6, 1),
          sample_of({{3, 1}}, 8, 4)};
}

// Content drawn from the sample's index alone; images stand at the front of the text, one token
// apart.
class SyntheticData : public StepData {
 public:
  explicit SyntheticData(const std::vector<SampleWork>& work, int patch_size = kPatchSize)
      : work_(work), patch_size_(patch_size) {
    for (std::size_t s = 0; s < work.size(); ++s) {
      Rng rng(99, s);
      TokenizedSample text;
      for (std::int64_t i = 0; i < work[s].llm_tokens; ++i) {
        text.ids.push_back(static_cast<std::int64_t>(rng.below(40)));
      }
      std::int64_t position = 1;
      for (const SegmentWork& segment : work[s].segments[0]) {
        text.feature_begin.push_back(position);
        position += segment.llm_tokens + 1;
      }
      text.targets = {{work[s].llm_tokens - work[s].target_tokens, work[s].llm_tokens}};
      texts_.push_back(std::move(text));
    }
  }

  SegmentData segment(int module, int sample, int segment) override {
    const SegmentWork& work = work_.at(static_cast<std::size_t>(sample))
                                  .segments.at(static_cast<std::size_t>(module))
                                  .at(static_cast<std::size_t>(segment));
    Rng rng(7, static_cast<std::uint64_t>(100 * sample + segment));
    at::Tensor patches = at::empty({work.tokens, 3 * patch_size_ * patch_size_});
    for (std::int64_t i = 0; i < patches.numel(); ++i) {
      patches.data_ptr<float>()[i] = static_cast<float>(rng.normal());
    }
    return {patches, work.rows, work.columns};
  }
  const TokenizedSample& text(int sample) override {
    return texts_.at(static_cast<std::size_t>(sample));
  }

 protected:
  std::vector<SampleWork> work_;
  std::vector<TokenizedSample> texts_;
  int patch_size_ = kPatchSize;
};

struct Step {
  ModelSpec model;
  Plan plan;
  StepCosts costs;
  Program program;
  std::vector<std::string> ids;
  std::int64_t target_tokens = 0;
};

struct Layout {
  std::vector<int> stages = {1, 1};  // of vision and LLM
  int replicas = 1;
  bool single_lane = false;
  std::string schedule = "gpipe";
  FrozenPattern frozen = FrozenPattern::kNone;
  bool chunks = false;  // about half of the samples cut
};

inline Step make_step(const Layout& layout, std::uint64_t seed = 1) {
  Step step;
  step.model = tiny_model(layout.frozen);
  step.plan = even_plan(step.model, layout.stages, layout.replicas, 3);
  if (layout.single_lane) {
    std::vector<StageRef> all;
    for (const auto& lane : step.plan.lanes) {
      all.insert(all.end(), lane.begin(), lane.end());
    }
    step.plan.lanes = {all};
  }
  step.plan.limits.chunks = layout.chunks;
  const std::vector<SampleWork> work = tiny_batch();
  step.costs = step_costs(
      step.model, step.plan, analytic_profile(step.model, device_model("cpu-2core")), work);
  Rng rng(seed);
  step.program = build_program(step.plan,
                               oracle::random_assignment(rng, step.costs, step.plan, 1, 5),
                               step.costs,
                               layout.schedule);
  for (std::size_t s = 0; s < work.size(); ++s) {
    step.ids.push_back(concat("sample-", s));
    step.target_tokens += work[s].target_tokens;
  }
  return step;
}

inline StepInputs inputs_of(const Step& step, StepData* data) {
  StepInputs inputs;
  inputs.program = &step.program;
  inputs.costs = &step.costs;
  inputs.sample_ids = &step.ids;
  inputs.step = 5;
  inputs.target_tokens = step.target_tokens;
  inputs.data = data;
  inputs.start = std::chrono::steady_clock::now();
  return inputs;
}

struct Result {
  double loss_sum = 0;
  double gradient_norm = 0;
  std::vector<std::map<std::string, at::Tensor>> gradients;  // [replica], by name
  std::vector<StepOutcome> outcomes;                         // [rank]
  int optimizer_steps = 0;
};

inline ExecutorOptions seeded_options() {
  ExecutorOptions options;
  options.stage.seed = 3;
  return options;
}

using MakeData = std::function<std::unique_ptr<StepData>(int rank)>;

inline Result run_step(const Step& step,
                       const ExecutorOptions& options = seeded_options(),
                       const MakeData& make_data = {},
                       seconds deadline = seconds(20)) {
  const RankPlaces places(step.plan);
  ThreadCommGroup group(places.num_ranks(), deadline);
  Result result;
  result.gradients.resize(static_cast<std::size_t>(step.plan.replicas));
  result.outcomes.resize(static_cast<std::size_t>(group.size()));
  std::mutex mutex;
  run_ranks(group, [&](int rank) {
    const int replica = places.place_of(rank).replica;
    Executor executor(step.model, step.plan, group.comm(rank), options);
    const std::unique_ptr<StepData> data =
        make_data ? make_data(rank) : std::make_unique<SyntheticData>(step.costs.work);
    const StepOutcome outcome = executor.run(inputs_of(step, data.get()), [&] {
      const std::lock_guard lock(mutex);
      ++result.optimizer_steps;
    });
    const std::lock_guard lock(mutex);
    result.loss_sum += outcome.loss_sum;
    result.gradient_norm = outcome.gradient_norm;
    for (const NamedParameter& parameter : executor.parameters()) {
      if (parameter.tensor.requires_grad()) {
        ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
        result.gradients[static_cast<std::size_t>(replica)][parameter.name] =
            parameter.tensor.grad();
      }
    }
    result.outcomes[static_cast<std::size_t>(rank)] = outcome;
  });
  return result;
}

}  // namespace entrain::engine::tiny
