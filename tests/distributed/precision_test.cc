// Steps that compute in bfloat16 against the float64 reference and against themselves.
#include <algorithm>
#include <cstdio>
#include <string>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "entrain/core/schedule/schedule.h"

#include "tests/oracle/engine/gradient_step.h"

namespace entrain {
namespace {

using namespace oracle;

// bfloat16 keeps 8 bits; what a gradient has come through rounds some tens of times.
constexpr double kLossTolerance = 0.01;      // of the loss
constexpr double kGradientTolerance = 0.08;  // of a parameter's norm, or a tenth of the global one

struct LargestErrors {
  double loss = 0;
  double gradient = 0;
  double norm = 0;
  int configurations = 0;
};

double norm_of(const at::Tensor& tensor) {
  return tensor.to(at::kDouble).norm().item<double>();
}

void expect_near_reference(const GradientBatch& batch,
                           const StepResult& result,
                           LargestErrors& largest) {
  const double loss = batch.reference.loss;
  largest.loss = std::max(largest.loss, std::abs(result.loss - loss) / loss);
  double squares = 0;
  for (const auto& [name, gradient] : result.gradients.front()) {
    squares += gradient.defined() ? std::pow(norm_of(batch.reference.gradients.at(name)), 2) : 0;
  }
  const double global = std::sqrt(squares);
  largest.norm = std::max(largest.norm, std::abs(result.gradient_norm - global) / global);
  for (const NamedWeights& replica : result.gradients) {
    for (const auto& [name, gradient] : replica) {
      if (!gradient.defined()) {
        continue;
      }
      EXPECT_EQ(gradient.scalar_type(), at::kFloat) << name;
      const at::Tensor& expected = batch.reference.gradients.at(name);
      const double error =
          norm_of(gradient.to(at::kDouble) - expected) / std::max(norm_of(expected), 0.1 * global);
      EXPECT_LE(error, kGradientTolerance) << name;
      largest.gradient = std::max(largest.gradient, error);
    }
  }
  EXPECT_LE(largest.loss, kLossTolerance);
  EXPECT_LE(largest.norm, kGradientTolerance);
  ++largest.configurations;
}

class Bfloat16 : public testing::Test {
 protected:
  static void SetUpTestSuite() { at::set_num_threads(1); }
};

constexpr FrozenPattern kPatterns[] = {FrozenPattern::kNone,
                                       FrozenPattern::kEncoders,
                                       FrozenPattern::kEncoderBodies,
                                       FrozenPattern::kLlm,
                                       FrozenPattern::kOnlyProjector};

TEST_F(Bfloat16, GradientsAreNearTheReferenceForEverySchedule) {
  const GradientBatch batch = make_gradient_batch(1, 10, 1);
  LargestErrors largest;
  std::uint64_t seed = 70;
  for (const std::string& schedule : schedule_names()) {
    for (const StepLayout& layout : {StepLayout{{1, 2}, 2, StageLanes::kOwn},
                                     StepLayout{{2, 3}, 1, StageLanes::kSingle},
                                     StepLayout{{4, 3}, 1, StageLanes::kWrapped}}) {
      for (const FrozenPattern frozen : kPatterns) {
        Rng rng(++seed, 77);
        const StepConfiguration configuration =
            configure(rng, batch, layout, schedule, frozen, seed % 2 == 0);
        SCOPED_TRACE(describe(configuration, seed));
        const StepResult result = run_step(batch, configuration, at::kBFloat16);
        expect_near_reference(batch, result, largest);
        expect_bitwise_equal(result, run_step(batch, configuration, at::kBFloat16));
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  std::printf("%d configurations in bfloat16; largest error: loss %.4f, norm %.4f, gradient %.4f\n",
              largest.configurations,
              largest.loss,
              largest.norm,
              largest.gradient);
  EXPECT_GT(largest.gradient, 1e-4) << "nothing was rounded";
}

// A copy of the table on another lane, and recordings beside images.
TEST_F(Bfloat16, GradientsAreNearTheReferenceWithTiedEmbeddingsAndAudio) {
  const GradientBatch tied = make_gradient_batch({"vision"}, 10, 9, /*tied=*/true);
  const GradientBatch audio = make_gradient_batch({"vision", "audio"}, 11, 7);
  LargestErrors largest;
  std::uint64_t seed = 500;
  const auto expect_near = [&](const GradientBatch& batch, const StepLayout& layout) {
    for (const FrozenPattern frozen : kPatterns) {
      Rng rng(++seed, 77);
      const StepConfiguration configuration =
          configure(rng, batch, layout, "zb-h1", frozen, seed % 2 == 0, layout.replicas > 1);
      SCOPED_TRACE(describe(configuration, seed));
      expect_near_reference(batch, run_step(batch, configuration, at::kBFloat16), largest);
    }
  };
  expect_near(tied, {{1, 3}, 1, StageLanes::kOwn});
  expect_near(tied, {{1, 2}, 2, StageLanes::kOwn});
  expect_near(tied, {{2, 3}, 1, StageLanes::kSingle});
  expect_near(audio, {{1, 2, 2}, 1, StageLanes::kOwn});
  expect_near(audio, {{1, 1, 1}, 2, StageLanes::kOwn});
  std::printf("%d configurations; largest error: loss %.4f, norm %.4f, gradient %.4f\n",
              largest.configurations,
              largest.loss,
              largest.norm,
              largest.gradient);
}

TEST_F(Bfloat16, RecomputedLayersChangeNoBit) {
  const GradientBatch batch = make_gradient_batch(1, 10, 5);
  std::uint64_t seed = 900;
  for (const std::string& schedule : schedule_names()) {
    Rng rng(++seed, 77);
    StepConfiguration configuration =
        configure(rng, batch, {{2, 2}, 1, StageLanes::kOwn}, schedule, kPatterns[seed % 5]);
    const StepResult kept = run_step(batch, configuration, at::kBFloat16);
    recompute_layers(rng, configuration.plan);
    SCOPED_TRACE(describe(configuration, seed));
    expect_bitwise_equal(kept, run_step(batch, configuration, at::kBFloat16));
  }
}

}  // namespace
}  // namespace entrain
