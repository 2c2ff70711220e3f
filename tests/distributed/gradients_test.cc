// Gradients of pipelined, deferred, replicated training against one plain process: for every
// layout, schedule and freezing, under assignments wilder than any policy's.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/dataset/text.h"
#include "entrain/core/schedule/schedule.h"

#include "entrain/engine/comm/thread_comm.h"
#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/pipeline/ranks.h"

#include "tests/oracle/engine/reference_model.h"
#include "tests/oracle/random_cases.h"

namespace entrain::engine {
namespace {

constexpr std::uint64_t kSeed = 20260;

EncoderSpec tiny_encoder(const std::string& name) {
  EncoderSpec encoder;
  encoder.name = name;
  encoder.num_layers = 2;
  encoder.hidden = 16;
  encoder.num_heads = 2;
  encoder.intermediate = 24;
  encoder.patch_size = 4;
  encoder.merge_size = 2;
  encoder.min_pixels = 64;
  encoder.max_pixels = 1200;
  encoder.window_size = 16;  // four patches a side, in the second of two layers
  encoder.full_attention_layers = {0};
  return encoder;
}

ModelSpec tiny_model(int num_encoders) {
  ModelSpec model;
  model.name = "tiny";
  for (int e = 0; e < num_encoders; ++e) {
    model.encoders.push_back(tiny_encoder(e == 0 ? "vision" : "thermal"));
  }
  model.llm.num_layers = 3;
  model.llm.hidden = 24;
  model.llm.num_heads = 4;
  model.llm.num_kv_heads = 2;
  model.llm.head_dim = 6;
  model.llm.intermediate = 32;
  model.llm.vocab_size = kVocabSize;
  return model;
}

std::string random_text(Rng& rng, std::int64_t length) {
  std::string text;
  for (std::int64_t i = 0; i < length; ++i) {
    text.push_back(static_cast<char>('a' + static_cast<char>(rng.below(26))));
  }
  return text;
}

// A global batch that exists in memory alone, with its reference.
struct Batch {
  ModelSpec model;  // nothing frozen
  std::vector<std::string> ids;
  std::vector<SampleWork> work;
  std::vector<TokenizedSample> texts;
  std::vector<std::vector<std::vector<SegmentData>>> segments;  // [module][sample][segment]
  std::int64_t target_tokens = 0;
  oracle::NamedWeights weights;
  oracle::ReferenceResult reference;
};

// Patches of one sample for all encoders, and the sample as the reference reads it.
oracle::ReferenceSample add_segments(Rng& rng, int sample, Batch& batch) {
  const SampleWork& work = batch.work.back();
  const TokenizedSample& text = batch.texts.back();
  oracle::ReferenceSample plain;
  plain.ids = text.ids;
  plain.target_begin = text.target_begin;
  std::size_t image = 0;
  for (std::size_t module = 0; module < work.segments.size(); ++module) {
    const std::int64_t patch = batch.model.encoders[module].patch_size;
    std::vector<SegmentData>& segments = batch.segments[module].emplace_back();
    for (const SegmentWork& segment : work.segments[module]) {
      const std::string name = concat("patches ", sample, " ", image, " ", rng.next());
      const at::Tensor patches =
          initial_weight(name, {segment.tokens, 3 * patch * patch}, 1.0, {.seed = kSeed});
      segments.push_back({patches, segment.rows, segment.columns});
      plain.images.push_back({static_cast<int>(module),
                              patches.to(at::kDouble),
                              segment.rows,
                              segment.columns,
                              text.feature_begin[image]});
      ++image;
    }
  }
  return plain;
}

// Gains and biases away from one and zero, so that a mistake in them shows.
void roughen(oracle::NamedWeights& weights) {
  for (auto& [name, tensor] : weights) {
    if (tensor.dim() == 1) {
      tensor.add_(initial_weight(name + " noise", tensor.sizes().vec(), 0.3, {.seed = kSeed}));
    }
  }
}

Batch make_batch(int num_encoders, int num_samples, std::uint64_t seed) {
  Rng rng(seed);
  Batch batch;
  batch.model = tiny_model(num_encoders);
  batch.segments.resize(batch.model.encoders.size());
  std::vector<oracle::ReferenceSample> plain;
  for (int i = 0; i < num_samples; ++i) {
    SampleSizes sizes;
    sizes.id = concat("sample-", i);
    // Every fourth is text alone, every fourth has several images.
    const std::uint64_t images = i % 4 == 0 ? 0 : i % 4 == 1 ? 2 + rng.below(4) : 1;
    for (std::uint64_t image = 0; image < images; ++image) {
      sizes.images.push_back(
          {static_cast<int>(8 * (1 + rng.below(5))), static_cast<int>(8 * (1 + rng.below(3)))});
    }
    const SampleText text = {random_text(rng, static_cast<std::int64_t>(rng.below(12))),
                             random_text(rng, 1 + static_cast<std::int64_t>(rng.below(9)))};
    sizes.prompt_tokens = prompt_tokens(text, static_cast<int>(images) * num_encoders);
    sizes.response_tokens = response_tokens(text);
    batch.ids.push_back(sizes.id);
    batch.work.push_back(sample_work(batch.model, sizes));
    std::vector<std::int64_t> features;
    for (const auto& segments : batch.work.back().segments) {
      for (const SegmentWork& segment : segments) {
        features.push_back(segment.llm_tokens);
      }
    }
    batch.texts.push_back(tokenize(text, features));
    batch.target_tokens += batch.work.back().target_tokens;
    plain.push_back(add_segments(rng, i, batch));
  }
  batch.weights = oracle::initial_weights(batch.model, kSeed);
  roughen(batch.weights);
  oracle::NamedWeights exact;
  for (const auto& [name, tensor] : batch.weights) {
    exact[name] = tensor.to(at::kDouble);
  }
  batch.reference = oracle::reference_step(batch.model, exact, plain);
  return batch;
}

// One rank's view of the batch; nobody may ask for a segment twice.
class BatchData : public StepData {
 public:
  explicit BatchData(const Batch& batch) : batch_(batch) {}
  SegmentData segment(int module, int sample, int segment) override {
    EXPECT_TRUE(asked_.insert({module, sample, segment}).second)
        << "sample " << sample << " segment " << segment << " asked for twice";
    return batch_.segments.at(static_cast<std::size_t>(module))
        .at(static_cast<std::size_t>(sample))
        .at(static_cast<std::size_t>(segment));
  }
  const TokenizedSample& text(int sample) override {
    return batch_.texts.at(static_cast<std::size_t>(sample));
  }

 private:
  const Batch& batch_;
  std::set<std::tuple<int, int, int>> asked_;
};

struct Configuration {
  ModelSpec model;
  Plan plan;
  std::string schedule;
  StepCosts costs;
  StepAssignment assignment;
  Program program;
};

std::vector<LayerRange> random_cuts(Rng& rng, int layers, int stages) {
  std::vector<int> inner;
  for (int layer = 1; layer < layers; ++layer) {
    inner.push_back(layer);
  }
  rng.shuffle(std::span<int>(inner));
  std::vector<int> cuts(inner.begin(), inner.begin() + stages - 1);
  cuts.push_back(0);
  cuts.push_back(layers);
  std::sort(cuts.begin(), cuts.end());
  std::vector<LayerRange> result;
  for (int stage = 0; stage < stages; ++stage) {
    const auto i = static_cast<std::size_t>(stage);
    result.push_back({cuts[i], cuts[i + 1]});
  }
  return result;
}

struct Layout {
  std::vector<int> stages;  // [module]
  int replicas = 1;
  bool single_lane = false;
};

// Everything a step needs, with an assignment and layer cuts drawn from `rng`.
Configuration configure(Rng& rng,
                        const Batch& batch,
                        const Layout& layout,
                        const std::string& schedule,
                        oracle::FrozenPattern frozen) {
  Configuration result;
  result.model = batch.model;
  oracle::freeze(frozen, result.model);
  result.plan = even_plan(result.model, layout.stages, layout.replicas, 4);
  for (std::size_t module = 0; module < layout.stages.size(); ++module) {
    result.plan.modules[module].stages =
        random_cuts(rng, num_layers(result.model, static_cast<int>(module)), layout.stages[module]);
  }
  if (layout.single_lane) {
    std::vector<StageRef> all;
    for (const std::vector<StageRef>& lane : result.plan.lanes) {
      all.insert(all.end(), lane.begin(), lane.end());
    }
    result.plan.lanes = {all};
  }
  result.schedule = schedule;
  result.plan.schedule = schedule;
  validate(result.plan, result.model, "test plan");
  const Profile profile = analytic_profile(result.model, device_model("cpu-2core"));
  result.costs = step_costs(result.model, result.plan, profile, batch.work);
  result.assignment = oracle::random_assignment(rng, result.costs, result.plan, 1, 6);
  validate_assignment(result.assignment, result.plan, result.costs);
  result.program = build_program(result.plan, result.assignment, result.costs, schedule);
  validate_program(result.program, result.plan, result.assignment, result.costs);
  return result;
}

struct StepResult {
  double loss = 0;
  double gradient_norm = 0;
  std::vector<oracle::NamedWeights> gradients;  // [replica], after the reduction
};

StepResult run_step(const Batch& batch, const Configuration& configuration) {
  const Plan& plan = configuration.plan;
  const int num_lanes = plan.num_lanes();
  ThreadCommGroup group(plan.replicas * num_lanes);
  StepResult result;
  result.gradients.resize(static_cast<std::size_t>(plan.replicas));
  std::vector<double> losses(static_cast<std::size_t>(group.size()));
  std::mutex mutex;
  run_ranks(group, [&](int rank) {
    const int replica = rank / num_lanes;
    ExecutorOptions options;
    options.stage.seed = kSeed;
    Executor executor(
        configuration.model, plan, replica, rank % num_lanes, group.comm(rank), options);
    for (const NamedParameter& parameter : executor.parameters()) {
      const at::NoGradGuard no_grad;
      at::Tensor target = parameter.tensor;
      target.copy_(batch.weights.at(parameter.name));
    }
    BatchData data(batch);
    StepInputs inputs;
    inputs.program = &configuration.program;
    inputs.costs = &configuration.costs;
    inputs.sample_ids = &batch.ids;
    inputs.target_tokens = batch.target_tokens;
    inputs.data = &data;
    inputs.start = std::chrono::steady_clock::now();
    const StepOutcome outcome = executor.run(inputs, {});
    const std::lock_guard lock(mutex);
    losses[static_cast<std::size_t>(rank)] = outcome.loss_sum;
    result.gradient_norm = outcome.gradient_norm;
    for (const NamedParameter& parameter : executor.parameters()) {
      const bool first = result.gradients[static_cast<std::size_t>(replica)]
                             .emplace(parameter.name, parameter.tensor.grad())
                             .second;
      EXPECT_TRUE(first) << parameter.name << " lies on two lanes";
      EXPECT_EQ(parameter.tensor.requires_grad(), parameter.tensor.grad().defined())
          << parameter.name;
    }
  });
  for (const double loss : losses) {
    result.loss += loss / static_cast<double>(batch.target_tokens);
  }
  return result;
}

// Largest deviations seen, in units of what is allowed.
struct Deviations {
  int configurations = 0;
  double loss = 0;
  double gradient = 0;
};

void expect_reference(const Batch& batch, const StepResult& result, Deviations& deviations) {
  constexpr double kLossTolerance = 1e-6;
  constexpr double kGradientTolerance = 1e-5;
  ++deviations.configurations;
  const oracle::ReferenceResult& reference = batch.reference;
  const double loss_error = std::abs(result.loss - reference.loss) / kLossTolerance;
  EXPECT_LE(loss_error, 1.0) << result.loss << " against " << reference.loss;
  deviations.loss = std::max(deviations.loss, loss_error);
  double squares = 0;
  for (const auto& [name, gradient] : result.gradients.front()) {
    if (gradient.defined()) {
      const double norm = reference.gradients.at(name).norm().item<double>();
      squares += norm * norm;
    }
  }
  const double global_norm = std::sqrt(squares);
  EXPECT_NEAR(result.gradient_norm, global_norm, kGradientTolerance * global_norm);
  ASSERT_EQ(result.gradients.front().size(), reference.gradients.size());
  for (const oracle::NamedWeights& replica : result.gradients) {
    for (const auto& [name, gradient] : replica) {
      if (!gradient.defined()) {
        continue;
      }
      const at::Tensor& expected = reference.gradients.at(name);
      const double allowed =
          kGradientTolerance * std::max(expected.norm().item<double>(), 1e-3 * global_norm);
      const double error = (gradient.to(at::kDouble) - expected).norm().item<double>() / allowed;
      EXPECT_LE(error, 1.0) << name;
      deviations.gradient = std::max(deviations.gradient, error);
      EXPECT_TRUE(at::equal(gradient, result.gradients.front().at(name)))
          << name << " differs between replicas";
    }
  }
}

struct Cell {
  Layout layout;
  std::string schedule;
};

// {1-3 LLM stages} × {1-2 encoder stages} × {1-2 replicas} × {gpipe, 1f1b}, and one lane for all.
std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (const std::string schedule : {"gpipe", "1f1b"}) {
    const auto add = [&](std::vector<int> stages, int replicas, bool single_lane) {
      Cell& cell = cells.emplace_back();
      cell.layout.stages = std::move(stages);
      cell.layout.replicas = replicas;
      cell.layout.single_lane = single_lane;
      cell.schedule = schedule;
    };
    for (const int replicas : {1, 2}) {
      for (const int llm_stages : {1, 2, 3}) {
        for (const int encoder_stages : {1, 2}) {
          add({encoder_stages, llm_stages}, replicas, false);
        }
      }
      add({1, 1}, replicas, true);
      add({2, 3}, replicas, true);
    }
  }
  return cells;
}

constexpr oracle::FrozenPattern kPatterns[] = {oracle::FrozenPattern::kNone,
                                               oracle::FrozenPattern::kEncoders,
                                               oracle::FrozenPattern::kEncoderBodies,
                                               oracle::FrozenPattern::kLlm,
                                               oracle::FrozenPattern::kOnlyProjector};

std::string describe(const Configuration& configuration, std::uint64_t seed) {
  oracle::RandomCase instance;
  instance.model = configuration.model;
  instance.plan = configuration.plan;
  instance.costs = configuration.costs;
  instance.assignment = configuration.assignment;
  return concat(configuration.schedule, ", seed ", seed, "\n", oracle::describe(instance));
}

class Gradients : public testing::Test {
 protected:
  static void SetUpTestSuite() { at::set_num_threads(1); }
};

TEST_F(Gradients, EqualTheReferenceForEveryLayoutScheduleAndFreezing) {
  constexpr int kAssignments = 2;
  const std::vector<Batch> batches = {make_batch(1, 10, 1), make_batch(1, 7, 2)};
  Deviations deviations;
  std::uint64_t seed = 0;
  for (const Cell& cell : all_cells()) {
    for (const oracle::FrozenPattern frozen : kPatterns) {
      for (int i = 0; i < kAssignments; ++i) {
        const Batch& batch = batches[static_cast<std::size_t>(i) % batches.size()];
        Rng rng(++seed, 77);
        const Configuration configuration =
            configure(rng, batch, cell.layout, cell.schedule, frozen);
        SCOPED_TRACE(describe(configuration, seed));
        expect_reference(batch, run_step(batch, configuration), deviations);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  std::printf(
      "%d configurations; largest error in units of the tolerance: loss %.3f, gradient %.3f\n",
      deviations.configurations,
      deviations.loss,
      deviations.gradient);
}

TEST_F(Gradients, EqualTheReferenceWithTwoEncoders) {
  const Batch batch = make_batch(2, 9, 3);
  Deviations deviations;
  std::uint64_t seed = 5000;
  for (const std::string schedule : {"gpipe", "1f1b"}) {
    for (const Layout& layout :
         {Layout{{1, 2, 2}, 1, false}, Layout{{2, 1, 1}, 2, false}, Layout{{1, 1, 2}, 1, true}}) {
      for (const oracle::FrozenPattern frozen : kPatterns) {
        Rng rng(++seed, 77);
        Configuration configuration = configure(rng, batch, layout, schedule, frozen);
        SCOPED_TRACE(describe(configuration, seed));
        expect_reference(batch, run_step(batch, configuration), deviations);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  std::printf(
      "%d configurations; largest error in units of the tolerance: loss %.3f, gradient %.3f\n",
      deviations.configurations,
      deviations.loss,
      deviations.gradient);
}

// [module][stage] a number of layers, some more than none.
void recompute_layers(Rng& rng, Plan& plan) {
  for (ModulePlan& module : plan.modules) {
    module.recompute.clear();
    for (const LayerRange& layers : module.stages) {
      const auto most = static_cast<std::uint64_t>(layers.end - layers.begin);
      module.recompute.push_back(static_cast<int>(rng.below(3) == 0 ? most : rng.below(most + 1)));
    }
  }
}

void expect_bitwise_equal(const StepResult& first, const StepResult& second) {
  EXPECT_EQ(first.loss, second.loss);
  EXPECT_EQ(first.gradient_norm, second.gradient_norm);
  for (std::size_t replica = 0; replica < first.gradients.size(); ++replica) {
    for (const auto& [name, gradient] : first.gradients[replica]) {
      const at::Tensor& again = second.gradients[replica].at(name);
      ASSERT_EQ(gradient.defined(), again.defined()) << name;
      EXPECT_TRUE(!gradient.defined() || at::equal(gradient, again)) << name;
    }
  }
}

TEST_F(Gradients, RecomputedLayersChangeNoBit) {
  const std::vector<Batch> batches = {make_batch(1, 10, 5), make_batch(2, 9, 6)};
  std::uint64_t seed = 12'000;
  int recomputed = 0;
  for (const Cell& cell : all_cells()) {
    for (const oracle::FrozenPattern frozen : kPatterns) {
      Rng rng(++seed, 77);
      const Batch& batch = batches[seed % 2];
      Layout layout = cell.layout;
      if (batch.model.encoders.size() == 2) {
        layout.stages.insert(layout.stages.begin(), 1);
      }
      Configuration configuration = configure(rng, batch, layout, cell.schedule, frozen);
      const StepResult kept = run_step(batch, configuration);
      recompute_layers(rng, configuration.plan);
      SCOPED_TRACE(describe(configuration, seed));
      expect_bitwise_equal(kept, run_step(batch, configuration));
      ASSERT_FALSE(HasFailure());
      recomputed += recomputes(configuration.plan) ? 1 : 0;
    }
  }
  std::printf("%d configurations with recomputed layers\n", recomputed);
  EXPECT_GT(recomputed, 100);
}

TEST_F(Gradients, TwoRunsOfOneConfigurationAreBitwiseEqual) {
  const Batch batch = make_batch(1, 10, 4);
  std::uint64_t seed = 9000;
  int configurations = 0;
  for (const Cell& cell : all_cells()) {
    Rng rng(++seed, 77);
    const Configuration configuration =
        configure(rng, batch, cell.layout, cell.schedule, kPatterns[seed % std::size(kPatterns)]);
    SCOPED_TRACE(describe(configuration, seed));
    expect_bitwise_equal(run_step(batch, configuration), run_step(batch, configuration));
    ASSERT_FALSE(HasFailure());
    ++configurations;
  }
  std::printf("%d configurations run twice\n", configurations);
}

}  // namespace
}  // namespace entrain::engine
