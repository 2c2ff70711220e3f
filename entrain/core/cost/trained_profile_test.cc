#include "entrain/core/cost/trained_profile.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/cost/analytic.h"
#include "entrain/core/cost/memory.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/parameters.h"
#include "entrain/core/spec/training.h"

namespace entrain {
namespace {

using Words = std::vector<std::string>;

// One encoder and a decoder whose matrices are easy to count: q, k, v, o of 64 x 64, MLP 64 x 128.
ModelSpec model_of_sixty_four() {
  ModelSpec model;
  model.name = "m";
  EncoderSpec& vision = model.encoders.emplace_back();
  vision.name = "vision";
  vision.num_layers = 2;
  vision.hidden = 64;
  vision.num_heads = 4;
  vision.intermediate = 128;
  model.llm.num_layers = 2;
  model.llm.hidden = 64;
  model.llm.num_heads = model.llm.num_kv_heads = 4;
  model.llm.head_dim = 16;
  model.llm.intermediate = 128;
  model.llm.vocab_size = 300;
  return model;
}

constexpr double kMatrices = 4 * 64 * 64 + 3 * 64 * 128;

LayerProfile profile_of_ones() {
  const CostCurve ones = {1.0, 1.0, 1.0};
  LayerProfile profile;
  profile.module = "llm";
  profile.forward = profile.backward_input = profile.backward_weight = ones;
  profile.split = profile.recompute = ones;
  profile.activation_bytes_per_token = 1000;
  return profile;
}

TEST(TrainedProfile, IsTheProfileWhereAllOrNothingIsTrained) {
  ModelSpec model = model_of_sixty_four();
  for (const bool frozen : {false, true}) {
    model.llm.frozen = frozen;
    const LayerProfile profile =
        trained_profile(model, 1, count_parameters(model, 1, 1), profile_of_ones(), 4);
    EXPECT_EQ(profile.forward.per_token_ns, 1.0);
    EXPECT_EQ(profile.backward_weight.per_token_ns, 1.0);
    EXPECT_EQ(profile.activation_bytes_per_token, 1000);
  }
}

TEST(TrainedProfile, HasTheTrainedMatricesShareOfWeightGradients) {
  ModelSpec model = model_of_sixty_four();
  freeze_modules(model, Words{"*.mlp.*", "q_proj"}, "freeze");
  const LayerProfile profile =
      trained_profile(model, 1, count_parameters(model, 1, 1), profile_of_ones(), 4);
  EXPECT_DOUBLE_EQ(profile.backward_weight.per_token_ns, 3 * 64 * 64 / kMatrices);
  EXPECT_DOUBLE_EQ(profile.split.per_token_ns, 3 * 64 * 64 / kMatrices);
  EXPECT_EQ(profile.backward_weight.per_launch_ns, 1.0);
  EXPECT_EQ(profile.forward.per_token_ns, 1.0);
  EXPECT_EQ(profile.backward_input.per_token_ns, 1.0);
  EXPECT_EQ(profile.activation_bytes_per_token, 1000);
}

TEST(TrainedProfile, AddsAdaptersToEveryOperation) {
  ModelSpec model = model_of_sixty_four();
  add_lora(model, {4, 8.0, {"q_proj", "llm.*.down_proj"}, {}}, "lora");
  const LayerProfile profile =
      trained_profile(model, 1, count_parameters(model, 1, 1), profile_of_ones(), 2);
  const double adapters = 4 * (64 + 64) + 4 * (64 + 128);
  EXPECT_DOUBLE_EQ(profile.forward.per_token_ns, 1 + adapters / kMatrices);
  EXPECT_DOUBLE_EQ(profile.backward_input.per_token_ns, 1 + adapters / kMatrices);
  EXPECT_DOUBLE_EQ(profile.recompute.per_token_ns, 1 + adapters / kMatrices);
  EXPECT_DOUBLE_EQ(profile.backward_weight.per_token_ns, adapters / kMatrices);
  EXPECT_EQ(profile.forward.per_pair_ns, 1.0);
  EXPECT_EQ(profile.activation_bytes_per_token, 1000 + 2 * 2 * 4);
}

Plan whole_plan(const ModelSpec& model, int replicas) {
  Plan plan;
  plan.replicas = replicas;
  for (int module = 0; module < model.num_modules(); ++module) {
    ModulePlan& part = plan.modules.emplace_back();
    part.name = module_name(model, module);
    part.stages = {{0, num_layers(model, module)}};
  }
  plan.lanes = default_lanes(plan.modules);
  return plan;
}

// A step of adapters is cheaper than one of all weights, in time, gradients and states, and a
// frozen encoder without adapters pays its forward alone.
TEST(TrainedProfile, MakesAStepOfAdaptersCheaper) {
  const ModelSpec full = model_of_sixty_four();
  ModelSpec adapted = full;
  add_lora(adapted, {4, 8.0, {"llm.*_proj"}, {}}, "lora");
  const Profile profile = analytic_profile(full, device_model("h100"), {});
  validate(profile, adapted, "profile");
  SampleSizes sizes;
  sizes.id = "s";
  sizes.images = {{280, 280}};
  sizes.prompt_tokens = 10;
  sizes.response_tokens = 20;
  const std::vector<SampleWork> work = {sample_work(full, sizes)};
  const Plan plan = whole_plan(full, 2);
  const StepCosts of_full = step_costs(full, plan, profile, work);
  const StepCosts of_adapted = step_costs(adapted, plan, profile, work);
  const StageCosts& llm = of_adapted.modules[1].stages[0];
  const StageCosts& full_llm = of_full.modules[1].stages[0];
  EXPECT_GT(llm.units[0].time.forward, full_llm.units[0].time.forward);
  EXPECT_LT(llm.units[0].time.backward_weight, full_llm.units[0].time.backward_weight / 4);
  EXPECT_LT(llm.reduce, full_llm.reduce / 4);
  EXPECT_LT(llm.optimizer, full_llm.optimizer / 4);
  const StageCosts& vision = of_adapted.modules[0].stages[0];
  EXPECT_FALSE(vision.trainable);
  EXPECT_EQ(vision.units[0].time.backward().count(), 0);
  EXPECT_EQ(vision.units[0].activation_bytes, 0);
  EXPECT_GT(of_full.modules[0].stages[0].units[0].activation_bytes, 0);
  // Seven matrices a decoder, at rank 4.
  const std::int64_t adapters = 2 * 4 * (4 * (64 + 64) + 3 * (64 + 128));
  EXPECT_EQ(llm.trainable_parameters, adapters);
  const StateBytes state = lane_states(adapted, plan, {})[1];
  EXPECT_EQ(state.gradient_bytes, 4 * adapters);
  EXPECT_EQ(state.optimizer_bytes, 8 * adapters);
  EXPECT_EQ(state.parameter_bytes, lane_states(full, plan, {})[1].parameter_bytes + 4 * adapters);
}

TEST(TrainedProfile, DividesAdaptersAmongTheDevicesOfALane) {
  ModelSpec model = model_of_sixty_four();
  add_lora(model, {4, 8.0, {"q_proj", "llm.*.down_proj"}, {}}, "lora");
  Plan plan = whole_plan(model, 1);
  plan.modules[1].tensor_parallel = 2;
  // A of q_proj and B of down_proj are replicated.
  const std::int64_t adapters = 2 * (4 * 64 + 4 * 64 / 2 + 4 * 128 / 2 + 4 * 64);
  EXPECT_EQ(lane_states(model, plan, {})[1].gradient_bytes, 4 * adapters);
}

}  // namespace
}  // namespace entrain
