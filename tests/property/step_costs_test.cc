// Random models, plans and profiles: step_costs() against sums that follow the definition layer by
// layer, with every layer asked anew which gradients it computes (autograd_graph.h).
#include "entrain/core/cost/step_costs.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

#include "tests/oracle/autograd_graph.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

constexpr std::uint64_t kSeed = 4021;
constexpr int kCases = 1000;

// Multiples of 1/8, so that sums in floating point are exact in any order.
double eighths(Rng& rng, int most) {
  return static_cast<double>(rng.below(static_cast<std::uint64_t>(8 * most))) / 8.0;
}

CostCurve random_curve(Rng& rng) {
  return {.per_pair_ns = eighths(rng, 3),
          .per_token_ns = eighths(rng, 50),
          .per_launch_ns = eighths(rng, 100)};
}

Profile random_profile(Rng& rng, const ModelSpec& model) {
  Profile profile;
  profile.device = "random";
  profile.source = "analytic";
  for (int module = 0; module < model.num_modules(); ++module) {
    std::set<LayerKind> seen;
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      if (!seen.insert(layer_kind(model, module, layer)).second) {
        continue;
      }
      LayerProfile entry;
      entry.module = module_name(model, module);
      entry.kind = layer_kind(model, module, layer);
      entry.forward = random_curve(rng);
      entry.backward_input = random_curve(rng);
      entry.backward_weight = random_curve(rng);
      entry.split = random_curve(rng);
      entry.activation_bytes_per_token = eighths(rng, 40);
      profile.layers.push_back(entry);
    }
  }
  return profile;
}

// Windows in every third model, one full layer among them in every sixth.
ModelSpec with_windows(ModelSpec model, int index) {
  for (EncoderSpec& encoder : model.encoders) {
    if (encoder.modality == Modality::kVision && index % 3 == 0) {
      encoder.window_size = encoder.patch_size * encoder.merge_size;
      encoder.full_attention_layers.assign(index % 2, encoder.num_layers - 1);
    }
  }
  return model;
}

// Attention pairs of a unit in full layers and in windowed ones.
struct Pairs {
  double full = 0;
  double window = 0;
};

struct Sums {
  double forward = 0;
  double input = 0;
  double weight = 0;
  double split = 0;
  double bytes = 0;
};

Sums layer_by_layer(const ModelSpec& model,
                    const oracle::ModuleCounts& counts,
                    const Profile& profile,
                    int module,
                    LayerRange layers,
                    Pairs pairs,
                    double tokens,
                    double targets,
                    double launches) {
  Sums sums;
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    const LayerKind kind = layer_kind(model, module, layer);
    const LayerProfile& entry = find_layer(profile, module_name(model, module), kind);
    const double counted = kind == LayerKind::kOutputHead ? targets : tokens;
    const auto cost = [&](const CostCurve& curve) {
      const double of = kind == LayerKind::kWindowedTransformer ? pairs.window : pairs.full;
      return curve.per_pair_ns * of + curve.per_token_ns * counted + curve.per_launch_ns * launches;
    };
    const auto& gradients =
        counts[static_cast<std::size_t>(module)][static_cast<std::size_t>(layer)];
    const bool input = gradients.input_gradients > 0;
    const bool weight = gradients.weight_gradients > 0;
    sums.forward += cost(entry.forward);
    sums.input += input ? cost(entry.backward_input) : 0;
    sums.weight += weight ? cost(entry.backward_weight) : 0;
    sums.split += input && weight ? cost(entry.split) : 0;
    sums.bytes += input || weight ? entry.activation_bytes_per_token * counted : 0;
  }
  return sums;
}

void expect_rounded(std::int64_t actual, double exact) {
  EXPECT_LE(std::abs(static_cast<double>(actual) - exact), 0.5);
}

void expect_unit(const UnitCost& actual, const Sums& exact) {
  expect_rounded(actual.time.forward.count(), exact.forward);
  expect_rounded(actual.time.backward_input.count(), exact.input);
  expect_rounded(actual.time.backward_weight.count(), exact.weight);
  expect_rounded(actual.time.split.count(), exact.split);
  expect_rounded(actual.activation_bytes, exact.bytes);
}

TEST(StepCosts, EqualSumsTakenLayerByLayer) {
  int frozen_stages = 0;
  for (int index = 0; index < kCases; ++index) {
    Rng rng(kSeed, static_cast<std::uint64_t>(index));
    const oracle::RandomCase drawn = oracle::make_random_case(rng);
    const ModelSpec model = with_windows(drawn.model, index);
    const Profile profile = random_profile(rng, model);
    const oracle::ModuleCounts counts = oracle::autograd_counts(model);
    const StepCosts costs = step_costs(model, drawn.plan, profile, drawn.costs.work);
    for (int module = 0; module < model.num_modules(); ++module) {
      const ModuleCosts& actual = costs.modules[static_cast<std::size_t>(module)];
      const auto& stages = drawn.plan.modules[static_cast<std::size_t>(module)].stages;
      ASSERT_EQ(actual.stages.size(), stages.size());
      for (std::size_t stage = 0; stage < stages.size(); ++stage) {
        const StageCosts& of_stage = actual.stages[stage];
        const Sums launch =
            layer_by_layer(model, counts, profile, module, stages[stage], {}, 0, 0, 1);
        expect_rounded(of_stage.launch.forward.count(), launch.forward);
        expect_rounded(of_stage.launch.backward_input.count(), launch.input);
        expect_rounded(of_stage.launch.backward_weight.count(), launch.weight);
        expect_rounded(of_stage.launch.split.count(), launch.split);
        frozen_stages += of_stage.trainable ? 0 : 1;
        std::size_t unit = 0;
        const auto next = [&](Pairs pairs, double tokens, double targets) {
          ASSERT_LT(unit, of_stage.units.size());
          expect_unit(
              of_stage.units[unit++],
              layer_by_layer(
                  model, counts, profile, module, stages[stage], pairs, tokens, targets, 0));
        };
        for (const SampleWork& sample : drawn.costs.work) {
          if (module == model.llm_module()) {
            next({static_cast<double>(sample.llm_attention_pairs), 0},
                 static_cast<double>(sample.llm_tokens),
                 static_cast<double>(sample.target_tokens));
            continue;
          }
          for (const SegmentWork& segment : sample.segments[static_cast<std::size_t>(module)]) {
            next({static_cast<double>(segment.attention_pairs),
                  static_cast<double>(segment.window_pairs)},
                 static_cast<double>(segment.tokens),
                 0);
          }
        }
        EXPECT_EQ(unit, of_stage.units.size());
      }
    }
    if (testing::Test::HasFailure()) {
      FAIL() << "seed " << kSeed << " case " << index << "\n" << describe(drawn);
    }
  }
  EXPECT_GT(frozen_stages, kCases / 10);
}

}  // namespace
}  // namespace entrain
