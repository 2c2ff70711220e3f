// rms_norm(), which layers.h declares.
#include <vector>

#include <gtest/gtest.h>

#include "entrain/engine/models/layers.h"

#include "tests/oracle/engine/tensors.h"

namespace entrain::engine {
namespace {

using oracle::gradient_error;
using oracle::largest_difference;
using oracle::random_tensor;

TEST(RmsNorm, EqualsTheCompositeForwardAndBackward) {
  for (const std::int64_t width : {1, 7, 16, 40, 129}) {
    const at::Tensor input = random_tensor({5, width}, "input", at::kFloat);
    const at::Tensor weight = random_tensor({width}, "weight", at::kFloat);
    const at::Tensor gradient = random_tensor({5, width}, "gradient", at::kFloat);
    const at::Tensor x = input.clone().set_requires_grad(true);
    const at::Tensor w = weight.clone().set_requires_grad(true);
    const at::Tensor y = rms_norm(x, w, 1e-6);
    y.backward(gradient);
    const at::Tensor exact_x = input.to(at::kDouble).set_requires_grad(true);
    const at::Tensor exact_w = weight.to(at::kDouble).set_requires_grad(true);
    const at::Tensor exact_y = rms_norm_composite(exact_x, exact_w, 1e-6);
    exact_y.backward(gradient.to(at::kDouble));
    EXPECT_LT(largest_difference(y, exact_y), 1e-5) << "width " << width;
    // Width 1 normalises to a sign, whose gradient is a difference of nearly equal numbers.
    EXPECT_LT(largest_difference(x.grad(), exact_x.grad()), 2e-5) << "width " << width;
    EXPECT_LT(largest_difference(w.grad(), exact_w.grad()), 1e-5) << "width " << width;
  }
}

TEST(RmsNorm, FusedGradientsEqualFiniteDifferences) {
  const at::Tensor input = random_tensor({3, 19}, "input");
  const at::Tensor weight = random_tensor({19}, "weight");
  EXPECT_LT(gradient_error([&](const at::Tensor& x) { return rms_norm(x, weight, 1e-6); }, input),
            1e-7);
  EXPECT_LT(gradient_error([&](const at::Tensor& w) { return rms_norm(input, w, 1e-6); }, weight),
            1e-7);
}

TEST(RmsNorm, LeavesFrozenInputsWithoutGradient) {
  const at::Tensor input = random_tensor({3, 8}, "input").set_requires_grad(true);
  const at::Tensor weight = random_tensor({8}, "weight");
  rms_norm(input, weight, 1e-6).sum().backward();
  EXPECT_TRUE(input.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
  const at::Tensor gain = weight.clone().set_requires_grad(true);
  const at::Tensor frozen = input.detach();
  rms_norm(frozen, gain, 1e-6).sum().backward();
  EXPECT_FALSE(frozen.grad().defined());
  EXPECT_TRUE(gain.grad().defined());
}

TEST(RmsNorm, ReadsRowsThatAreNotContiguous) {
  const at::Tensor wide = random_tensor({4, 20}, "wide");
  const at::Tensor weight = random_tensor({10}, "weight");
  const at::Tensor view = wide.narrow(1, 5, 10);
  EXPECT_LT(
      largest_difference(rms_norm(view, weight, 1e-6), rms_norm_composite(view, weight, 1e-6)),
      1e-12);
}

TEST(RmsNorm, WorksInBfloat16) {
  const at::Tensor input = random_tensor({4, 32}, "input", at::kBFloat16);
  const at::Tensor weight = at::ones({32}, at::kBFloat16);
  const at::Tensor exact = rms_norm(input.to(at::kDouble), weight.to(at::kDouble), 1e-6);
  EXPECT_LT(largest_difference(rms_norm(input, weight, 1e-6), exact), 2e-2);
}

// A gain's gradient is a sum over rows: of a thousand in bfloat16 little would be left.
TEST(RmsNorm, AddsGradientsOfBfloat16UpInFloat32) {
  const at::Tensor input = random_tensor({1000, 24}, "input", at::kBFloat16);
  const at::Tensor weight = random_tensor({24}, "weight", at::kBFloat16);
  const at::Tensor gradient = random_tensor({1000, 24}, "gradient", at::kBFloat16) + 1;
  const at::Tensor x = input.clone().set_requires_grad(true);
  const at::Tensor w = weight.clone().set_requires_grad(true);
  w.set_grad_dtype(at::kFloat);
  rms_norm(x, w, 1e-6).backward(gradient);
  const at::Tensor exact_x = input.to(at::kDouble).set_requires_grad(true);
  const at::Tensor exact_w = weight.to(at::kDouble).set_requires_grad(true);
  rms_norm(exact_x, exact_w, 1e-6).backward(gradient.to(at::kDouble));
  EXPECT_EQ(w.grad().scalar_type(), at::kFloat);
  EXPECT_LT(largest_difference(w.grad(), exact_w.grad()), 1e-3);
  EXPECT_EQ(x.grad().scalar_type(), at::kBFloat16);
  const at::Tensor rounding = exact_x.grad().abs() / 256 + 1e-6;
  EXPECT_TRUE(((x.grad().to(at::kDouble) - exact_x.grad()).abs() <= rounding).all().item<bool>());
}

}  // namespace
}  // namespace entrain::engine
