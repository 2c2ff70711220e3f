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
constexpr double kGradientTolerance = 0.05;  // of a parameter's norm, or a tenth of the global one

struct LargestErrors {
  double loss = 0;
  double gradient = 0;
  double norm = 0;
  double beside_plain = 0;  // of all gradients together, over that of plain autograd
  int configurations = 0;

  void print() const {
    std::printf(
        "%d configurations in bfloat16; largest error: loss %.4f, norm %.4f, gradient %.4f; all "
        "gradients together %.2f of plain autograd's\n",
        configurations,
        loss,
        norm,
        gradient,
        beside_plain);
  }
};

double norm_of(const at::Tensor& tensor) {
  return tensor.to(at::kDouble).norm().item<double>();
}

// What a step in bfloat16 is measured by, where the step's own rounding is all that counts.
struct NarrowReference {
  // About weights and inputs that are rounded to bfloat16, but in float64.
  NamedWeights gradients;
  // How far from it plain autograd in bfloat16 is, a parameter: one sample at a time, their
  // gradients added up in float64.
  std::map<std::string, double> plain_errors;
};

NarrowReference narrow_reference(const GradientBatch& batch) {
  NamedWeights narrow;
  NamedWeights exact;
  NamedWeights sums;
  for (const auto& [name, weight] : batch.weights) {
    narrow.emplace(name, weight.to(at::kBFloat16));
    exact.emplace(name, narrow.at(name).to(at::kDouble));
    sums.emplace(name, at::zeros_like(weight, at::kDouble));
  }
  std::vector<ReferenceSample> samples = batch.plain;
  for (ReferenceSample& sample : samples) {
    for (ReferenceSegment& segment : sample.segments) {
      segment.input = segment.input.to(at::kBFloat16).to(at::kDouble);
    }
    const ReferenceResult own = reference_step(batch.model, narrow, {&sample, 1});
    const double share =
        static_cast<double>(own.target_tokens) / static_cast<double>(batch.target_tokens);
    for (const auto& [name, gradient] : own.gradients) {
      sums.at(name) += gradient.to(at::kDouble) * share;
    }
  }
  NarrowReference result;
  result.gradients = reference_step(batch.model, exact, samples).gradients;
  for (const auto& [name, sum] : sums) {
    result.plain_errors.emplace(name, norm_of(sum - result.gradients.at(name)));
  }
  return result;
}

// All gradients together are nearer to the truth than plain autograd's.
void expect_nearer_than_plain(const NarrowReference& reference,
                              const StepResult& result,
                              LargestErrors& largest) {
  double own = 0;
  double plain = 0;
  for (const auto& [name, gradient] : result.gradients.front()) {
    if (gradient.defined()) {
      own += std::pow(norm_of(gradient.to(at::kDouble) - reference.gradients.at(name)), 2);
      plain += std::pow(reference.plain_errors.at(name), 2);
    }
  }
  EXPECT_LT(own, plain);
  largest.beside_plain = std::max(largest.beside_plain, std::sqrt(own / plain));
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
      const double distance = norm_of(gradient.to(at::kDouble) - expected);
      const double error = distance / std::max(norm_of(expected), 0.1 * global);
      largest.gradient = std::max(largest.gradient, error);
      EXPECT_LE(error, kGradientTolerance) << name;
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

TEST_F(Bfloat16, GradientsAreNearTheReferenceForEverySchedule) {
  const GradientBatch batch = make_gradient_batch(1, 10, 1);
  const NarrowReference narrow = narrow_reference(batch);
  LargestErrors largest;
  std::uint64_t seed = 70;
  for (const std::string& schedule : schedule_names()) {
    for (const StepLayout& layout : {StepLayout{{1, 2}, 2, StageLanes::kOwn},
                                     StepLayout{{2, 3}, 1, StageLanes::kSingle},
                                     StepLayout{{4, 3}, 1, StageLanes::kWrapped}}) {
      for (const FrozenPattern frozen : kFrozenPatterns) {
        Rng rng(++seed, 77);
        const StepConfiguration configuration =
            configure(rng, batch, layout, schedule, frozen, seed % 2 == 0);
        SCOPED_TRACE(describe(configuration, seed));
        const StepResult result = run_step(batch, configuration, at::kBFloat16);
        expect_near_reference(batch, result, largest);
        expect_nearer_than_plain(narrow, result, largest);
        expect_bitwise_equal(result, run_step(batch, configuration, at::kBFloat16));
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  largest.print();
  EXPECT_GT(largest.gradient, 1e-4) << "nothing was rounded";
}

// The ranks of a lane round their partial sums before they are added up, so the bound for each
// parameter is not theirs; loss, norm and all gradients together are held to the same.
TEST_F(Bfloat16, LanesOfSeveralRanksAreNearerThanPlainAutograd) {
  const GradientBatch batch = make_gradient_batch(1, 10, 1);
  const NarrowReference narrow = narrow_reference(batch);
  LargestErrors largest;
  std::uint64_t seed = 700;
  for (const std::string& schedule : schedule_names()) {
    for (const StepLayout& layout : {StepLayout{{1, 2}, 2, StageLanes::kOwn, {2, 2}},
                                     StepLayout{{2, 1}, 1, StageLanes::kOwn, {1, 2}}}) {
      Rng rng(++seed, 77);
      const StepConfiguration configuration =
          configure(rng, batch, layout, schedule, frozen_pattern_of(seed), seed % 2 == 0);
      SCOPED_TRACE(describe(configuration, seed));
      const StepResult result = run_step(batch, configuration, at::kBFloat16);
      double squares = 0;
      for (const auto& [name, gradient] : result.gradients.front()) {
        squares +=
            gradient.defined() ? std::pow(norm_of(batch.reference.gradients.at(name)), 2) : 0;
      }
      EXPECT_NEAR(result.loss, batch.reference.loss, kLossTolerance * batch.reference.loss);
      EXPECT_NEAR(
          result.gradient_norm, std::sqrt(squares), kGradientTolerance * std::sqrt(squares));
      expect_nearer_than_plain(narrow, result, largest);
      expect_bitwise_equal(result, run_step(batch, configuration, at::kBFloat16));
      ASSERT_FALSE(HasFailure());
      ++largest.configurations;
    }
  }
  std::printf("%d configurations in bfloat16; all gradients together %.2f of plain autograd's\n",
              largest.configurations,
              largest.beside_plain);
}

// A copy of the table on another lane, and recordings beside images.
TEST_F(Bfloat16, GradientsAreNearTheReferenceWithTiedEmbeddingsAndAudio) {
  const GradientBatch tied = make_gradient_batch({"vision"}, 10, 9, /*tied=*/true);
  const NarrowReference narrow = narrow_reference(tied);
  // Rounding this batch's weights moves gradients of the audio encoder by 6 %, before anything is
  // computed: what is judged is the rest. (Torch's own convolution has no gradient in bfloat16 for
  // the shortest windows, so plain autograd is no measure here.)
  GradientBatch audio = make_gradient_batch({"vision", "audio"}, 11, 7);
  audio.reference.gradients = narrow_reference(audio).gradients;
  LargestErrors largest;
  std::uint64_t seed = 500;
  const auto expect_near = [&](const GradientBatch& batch, const StepLayout& layout) {
    for (const FrozenPattern frozen : kFrozenPatterns) {
      Rng rng(++seed, 77);
      const StepConfiguration configuration =
          configure(rng, batch, layout, "zb-h1", frozen, seed % 2 == 0, layout.replicas > 1);
      SCOPED_TRACE(describe(configuration, seed));
      const StepResult result = run_step(batch, configuration, at::kBFloat16);
      expect_near_reference(batch, result, largest);
      if (&batch == &tied) {
        expect_nearer_than_plain(narrow, result, largest);
      }
    }
  };
  expect_near(tied, {{1, 3}, 1, StageLanes::kOwn});
  expect_near(tied, {{1, 2}, 2, StageLanes::kOwn});
  expect_near(tied, {{2, 3}, 1, StageLanes::kSingle});
  expect_near(audio, {{1, 2, 2}, 1, StageLanes::kOwn});
  expect_near(audio, {{1, 1, 1}, 2, StageLanes::kOwn});
  largest.print();
}

TEST_F(Bfloat16, RecomputedLayersChangeNoBit) {
  const GradientBatch batch = make_gradient_batch(1, 10, 5);
  std::uint64_t seed = 900;
  for (const std::string& schedule : schedule_names()) {
    Rng rng(++seed, 77);
    StepConfiguration configuration =
        configure(rng, batch, {{2, 2}, 1, StageLanes::kOwn}, schedule, frozen_pattern_of(seed));
    const StepResult kept = run_step(batch, configuration, at::kBFloat16);
    recompute_layers(rng, configuration.plan);
    SCOPED_TRACE(describe(configuration, seed));
    expect_bitwise_equal(kept, run_step(batch, configuration, at::kBFloat16));
  }
}

}  // namespace
}  // namespace entrain
