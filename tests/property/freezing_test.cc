// step_costs() against what autograd computes, operation by operation: every way to freeze a model
// of two encoders, under random cuts into stages.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/cost/step_costs.h"

#include "tests/oracle/autograd_graph.h"

namespace entrain {
namespace {

constexpr std::uint64_t kSeed = 71;
constexpr int kCutsPerPattern = 50;
constexpr int kPatterns = 32;  // two encoders, their projectors, the LLM

EncoderSpec encoder(const std::string& name, Modality modality, int layers) {
  EncoderSpec result;
  result.name = name;
  result.modality = modality;
  result.num_layers = layers;
  result.hidden = 8;
  result.num_heads = 2;
  result.intermediate = 16;
  return result;
}

ModelSpec frozen_model(int pattern) {
  ModelSpec model;
  model.name = "freezing";
  model.encoders = {encoder("vision", Modality::kVision, 3), encoder("audio", Modality::kAudio, 2)};
  model.encoders[0].frozen = (pattern & 1) != 0;
  model.encoders[0].projector_frozen = (pattern & 2) != 0;
  model.encoders[1].frozen = (pattern & 4) != 0;
  model.encoders[1].projector_frozen = (pattern & 8) != 0;
  model.llm.num_layers = 4;
  model.llm.hidden = 8;
  model.llm.num_heads = 2;
  model.llm.num_kv_heads = 2;
  model.llm.head_dim = 4;
  model.llm.intermediate = 16;
  model.llm.vocab_size = 32;
  model.llm.frozen = (pattern & 16) != 0;
  return model;
}

// Costs as digits: a layer kind's forward is 1, 100 or 10,000 (first, middle, last kind of its
// module), so that a stage's time tells how many layers of each kind pay it.
Profile counting_profile(const ModelSpec& model) {
  Profile profile;
  profile.device = "counting";
  profile.source = "analytic";
  for (int module = 0; module < model.num_modules(); ++module) {
    double digit = 1;
    for (const int layer : {0, 1, num_layers(model, module) - 1}) {
      LayerProfile entry;
      entry.module = module_name(model, module);
      entry.kind = layer_kind(model, module, layer);
      entry.forward = entry.backward_input = entry.backward_weight = {.per_launch_ns = digit};
      entry.activation_bytes_per_token = digit;
      profile.layers.push_back(entry);
      digit *= 100;
    }
  }
  return profile;
}

// Random cuts; half of the plans recompute random numbers of layers.
Plan random_plan(Rng& rng, const ModelSpec& model) {
  Plan plan;
  for (int module = 0; module < model.num_modules(); ++module) {
    ModulePlan& part = plan.modules.emplace_back();
    part.name = module_name(model, module);
    int begin = 0;
    for (int layer = 1; layer <= num_layers(model, module); ++layer) {
      if (layer == num_layers(model, module) || rng.below(2) == 0) {
        part.stages.push_back({begin, layer});
        begin = layer;
      }
    }
  }
  if (rng.below(2) == 0) {
    for (ModulePlan& part : plan.modules) {
      for (const LayerRange& layers : part.stages) {
        part.recompute.push_back(
            static_cast<int>(rng.below(static_cast<std::uint64_t>(layers.end - layers.begin + 1))));
      }
    }
  }
  plan.lanes = default_lanes(plan.modules);
  return plan;
}

std::vector<SampleWork> one_token_everywhere() {
  SampleWork work;
  work.segments = {{{.tokens = 1, .llm_tokens = 1}}, {{.tokens = 1, .llm_tokens = 1}}};
  work.llm_tokens = 1;
  work.target_tokens = 1;
  return {work};
}

struct Digits {
  std::int64_t forward = 0;
  std::int64_t input = 0;
  std::int64_t weight = 0;
  std::int64_t kept = 0;
  std::int64_t brought_back = 0;  // of recomputed layers
};

// What a recomputed layer still keeps, all modules being 8 float32 wide: its input, where that is
// not all it kept.
std::int64_t input_digit(std::int64_t digit) {
  return std::min<std::int64_t>(digit, 8 * 4);
}

Digits expected_digits(const ModelSpec& model,
                       const std::vector<oracle::LayerCounts>& counts,
                       int module,
                       LayerRange layers,
                       int recomputed) {
  Digits digits;
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    const std::int64_t digit = layer == 0                              ? 1
                               : layer + 1 < num_layers(model, module) ? 100
                                                                       : 10'000;
    const oracle::LayerCounts& of = counts[static_cast<std::size_t>(layer)];
    digits.forward += digit;
    digits.input += of.input_gradients > 0 ? digit : 0;
    digits.weight += of.weight_gradients > 0 ? digit : 0;
    if (of.input_gradients + of.weight_gradients == 0) {
      continue;
    }
    // A layer of one operation has nothing behind its input that its gradient needs.
    const bool again = layer < layers.begin + recomputed && of.operations > 1;
    digits.kept += again ? input_digit(digit) : digit;
    digits.brought_back += again ? digit - input_digit(digit) : 0;
    digits.input += again ? digit : 0;  // its operations once more
  }
  return digits;
}

TEST(Freezing, ChargesTheLayersInWhichAutogradComputesGradients) {
  for (int pattern = 0; pattern < kPatterns; ++pattern) {
    const ModelSpec model = frozen_model(pattern);
    const Profile profile = counting_profile(model);
    const oracle::ModuleCounts counts = oracle::autograd_counts(model);
    for (int cut = 0; cut < kCutsPerPattern; ++cut) {
      Rng rng(kSeed, static_cast<std::uint64_t>(pattern * kCutsPerPattern + cut));
      const Plan plan = random_plan(rng, model);
      const StepCosts costs = step_costs(model, plan, profile, one_token_everywhere());
      for (int module = 0; module < model.num_modules(); ++module) {
        const std::size_t m = static_cast<std::size_t>(module);
        for (std::size_t s = 0; s < plan.modules[m].stages.size(); ++s) {
          const LayerRange range = plan.modules[m].stages[s];
          const int recomputed = plan.modules[m].recomputed(static_cast<int>(s));
          const Digits expected = expected_digits(model, counts[m], module, range, recomputed);
          const StageCosts& stage = costs.modules[m].stages[s];
          const std::string where =
              "seed " + std::to_string(kSeed) + " pattern " + std::to_string(pattern) + " cut " +
              std::to_string(cut) + " module " + plan.modules[m].name + " layers " +
              std::to_string(range.begin) + " to " + std::to_string(range.end) + ", " +
              std::to_string(recomputed) + " recomputed";
          ASSERT_EQ(stage.launch.forward.count(), expected.forward) << where;
          ASSERT_EQ(stage.launch.backward_input.count(), expected.input) << where;
          ASSERT_EQ(stage.launch.backward_weight.count(), expected.weight) << where;
          ASSERT_EQ(stage.units[0].activation_bytes, expected.kept) << where;
          ASSERT_EQ(stage.units[0].recompute.all, expected.brought_back) << where;
          ASSERT_EQ(stage.trainable, expected.weight > 0) << where;
        }
      }
    }
  }
}

// Layers are charged whole. What autograd leaves out of a layer that pays its input gradient is the
// first operation at most; of one that does not, there is nothing.
TEST(Freezing, ChargesAtMostOneOperationALayerTooMany) {
  for (int pattern = 0; pattern < kPatterns; ++pattern) {
    const ModelSpec model = frozen_model(pattern);
    for (const std::vector<oracle::LayerCounts>& module : oracle::autograd_counts(model)) {
      for (const oracle::LayerCounts& layer : module) {
        EXPECT_TRUE(layer.input_gradients == 0 || layer.input_gradients + 1 >= layer.operations)
            << pattern;
      }
    }
  }
}

// The patterns that matter most, for a vision encoder of 3 transformer layers and an LLM of 4:
// layers that compute an input gradient and a weight gradient.
TEST(Freezing, CountsTheUsualPatterns) {
  struct Case {
    bool encoder;
    bool projector;
    bool llm;
    int encoder_input;
    int encoder_weight;
    int llm_input;
    int llm_weight;
  };
  for (const Case& of : {Case{false, false, false, 4, 5, 6, 6},  // all trained
                         Case{true, false, false, 1, 1, 6, 6},   // encoder frozen
                         Case{true, false, true, 1, 1, 6, 0},    // the projector alone
                         Case{true, true, false, 0, 0, 5, 6},    // the LLM alone
                         Case{false, false, true, 4, 5, 6, 0}}) {
    ModelSpec model = frozen_model(0);
    model.encoders.pop_back();
    model.encoders[0].frozen = of.encoder;
    model.encoders[0].projector_frozen = of.projector;
    model.llm.frozen = of.llm;
    int counted[2][2] = {};
    const oracle::ModuleCounts counts = oracle::autograd_counts(model);
    for (std::size_t module = 0; module < 2; ++module) {
      for (const oracle::LayerCounts& layer : counts[module]) {
        counted[module][0] += layer.input_gradients > 0 ? 1 : 0;
        counted[module][1] += layer.weight_gradients > 0 ? 1 : 0;
      }
    }
    EXPECT_EQ(counted[0][0], of.encoder_input);
    EXPECT_EQ(counted[0][1], of.encoder_weight);
    EXPECT_EQ(counted[1][0], of.llm_input);
    EXPECT_EQ(counted[1][1], of.llm_weight);
  }
}

}  // namespace
}  // namespace entrain
