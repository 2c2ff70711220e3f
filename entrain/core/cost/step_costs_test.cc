#include "entrain/core/cost/step_costs.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/paper_costs.h"

namespace entrain {
namespace {

using oracle::paper_batch;
using oracle::paper_layer;
using oracle::paper_model;
using oracle::paper_plan;
using oracle::paper_profile;
using std::chrono::nanoseconds;

struct Expected {
  std::int64_t forward;
  std::int64_t backward_input;
  std::int64_t backward_weight;
  std::int64_t activation_bytes;
};

void expect_unit(
    const StepCosts& costs, int module, int stage, int unit, const Expected& expected) {
  const UnitCost& actual = costs.modules[static_cast<std::size_t>(module)]
                               .stages[static_cast<std::size_t>(stage)]
                               .units[static_cast<std::size_t>(unit)];
  const std::string where = "module " + std::to_string(module) + " stage " + std::to_string(stage) +
                            " unit " + std::to_string(unit);
  EXPECT_EQ(actual.time.forward.count(), expected.forward) << where;
  EXPECT_EQ(actual.time.backward_input.count(), expected.backward_input) << where;
  EXPECT_EQ(actual.time.backward_weight.count(), expected.backward_weight) << where;
  EXPECT_EQ(actual.activation_bytes, expected.activation_bytes) << where;
}

void expect_launch(
    const StepCosts& costs, int module, int stage, std::int64_t f, std::int64_t i, std::int64_t w) {
  const OperationTimes& launch = costs.modules[static_cast<std::size_t>(module)]
                                     .stages[static_cast<std::size_t>(stage)]
                                     .launch;
  EXPECT_EQ(launch.forward.count(), f);
  EXPECT_EQ(launch.backward_input.count(), i);
  EXPECT_EQ(launch.backward_weight.count(), w);
}

TEST(StepCosts, CountWhatEveryLayerPaysWhenAllIsTrainable) {
  const StepCosts costs = step_costs(paper_model(), paper_plan(), paper_profile(), paper_batch());
  // First image of 4 tokens and 16 pairs; nothing lies nearer the input than the patches.
  expect_unit(costs, 0, 0, 0, {4 + 8 + 12, 16 + 20, 16 + 28, 12 + 40});
  expect_unit(costs, 0, 0, 1, {8 + 32 + 24, 64 + 40, 32 + 56, 24 + 80});
  expect_unit(costs, 0, 1, 0, {36, 24, 32, 20});
  expect_unit(costs, 1, 0, 0, {20, 10, 30, 10});
  // Decoder 0.25 · 50 + 10 · 10, head 100 · 3 target tokens: 412.5, once rounded to even.
  expect_unit(costs, 1, 1, 0, {412, 25 + 120 + 330, 110 + 360, 200 + 3000});
  // Text alone: 4.5 + 60 + 200, 9 + 72 + 220, 66 + 240.
  expect_unit(costs, 1, 1, 1, {264, 301, 306, 120 + 2000});
  expect_launch(costs, 0, 0, 21, 21, 81);
  expect_launch(costs, 0, 1, 12, 22, 42);
  expect_launch(costs, 1, 0, 13, 23, 43);
  expect_launch(costs, 1, 1, 29, 49, 89);
}

TEST(StepCosts, LeaveBackwardOutOfAFrozenEncoder) {
  ModelSpec model = paper_model();
  model.encoders[0].frozen = true;
  model.encoders[0].projector_frozen = true;
  const StepCosts costs = step_costs(model, paper_plan(), paper_profile(), paper_batch());
  expect_unit(costs, 0, 0, 0, {24, 0, 0, 0});
  expect_unit(costs, 0, 1, 0, {36, 0, 0, 0});
  // Nothing trainable lies nearer the input than the token embedding.
  expect_unit(costs, 1, 0, 0, {20, 0, 30, 10});
  expect_unit(costs, 1, 1, 0, {412, 475, 470, 3200});
  expect_launch(costs, 0, 0, 21, 0, 0);
  expect_launch(costs, 1, 0, 13, 0, 43);
  EXPECT_FALSE(costs.modules[0].stages[0].trainable);
  EXPECT_TRUE(costs.modules[1].stages[0].trainable);
}

TEST(StepCosts, CarryGradientsThroughAFrozenLlm) {
  ModelSpec model = paper_model();
  model.llm.frozen = true;
  const StepCosts costs = step_costs(model, paper_plan(), paper_profile(), paper_batch());
  expect_unit(costs, 0, 0, 0, {24, 36, 44, 52});
  expect_unit(costs, 0, 1, 0, {36, 24, 32, 20});
  expect_unit(costs, 1, 0, 0, {20, 10, 0, 10});
  expect_unit(costs, 1, 1, 0, {412, 475, 0, 3200});
  expect_launch(costs, 1, 1, 29, 49, 0);
  EXPECT_EQ(costs.modules[1].stages[1].trainable_parameters, 0);
}

TEST(StepCosts, PayForTheProjectorAndTheLayersAfterItWhenOnlyItTrains) {
  ModelSpec model = paper_model();
  model.llm.frozen = true;
  model.encoders[0].frozen = true;
  const StepCosts costs = step_costs(model, paper_plan(), paper_profile(), paper_batch());
  expect_unit(costs, 0, 0, 0, {24, 0, 0, 0});
  // The projector's norm gets its gradient through both matrices.
  expect_unit(costs, 0, 1, 0, {36, 24, 32, 20});
  expect_unit(costs, 1, 0, 0, {20, 10, 0, 10});
  expect_unit(costs, 1, 1, 0, {412, 475, 0, 3200});
  expect_launch(costs, 0, 0, 21, 0, 0);
  expect_launch(costs, 0, 1, 12, 22, 42);
}

TEST(StepCosts, CarryGradientsThroughTheSecondConvolutionOfAnAudioEmbedding) {
  ModelSpec model = paper_model();
  model.encoders[0].modality = Modality::kAudio;
  Profile profile = paper_profile();
  profile.layers[0].kind = LayerKind::kAudioEmbedding;
  const StepCosts costs = step_costs(model, paper_plan(), profile, paper_batch());
  expect_unit(costs, 0, 0, 0, {24, 36 + 8, 44, 52});
}

// The last LLM stage: a decoder of 16 numbers a token, 20 bytes kept, and the head of 1,000.
TEST(StepCosts, KeepTheInputOfRecomputedLayersAndRunTheirForwardAgain) {
  Plan plan = paper_plan();
  Profile profile = paper_profile();
  profile.layers[1].activation_bytes_per_token = 100;
  profile.layers[4].activation_bytes_per_token = 200;
  plan.modules[0].recompute = {2, 1};
  plan.modules[1].recompute = {1, 1};
  StepCosts costs = step_costs(paper_model(), plan, profile, paper_batch());
  // The patches are kept as they are; the transformer keeps 8 numbers of 4 bytes and runs its 0.5
  // a pair and 3 a token again, before its input gradient.
  expect_unit(costs, 0, 0, 0, {4 + 8 + 12, 16 + 20 + (8 + 12), 16 + 28, 12 + 4 * 32});
  expect_launch(costs, 0, 0, 21, 21 + 11, 81);
  EXPECT_EQ(costs.modules[0].stages[0].units[0].recompute, (RecomputeBytes{4 * 68, 4 * 68}));
  // The projector has fewer bytes to keep than its input takes: nothing comes back.
  expect_unit(costs, 0, 1, 0, {36, 24 + 36, 32, 20});
  EXPECT_EQ(costs.modules[0].stages[1].units[0].recompute, RecomputeBytes{});
  // A token embedding has nothing to run again.
  expect_unit(costs, 1, 0, 0, {20, 10, 30, 10});
  expect_launch(costs, 1, 0, 13, 23, 43);
  // The decoder, not the head: 25 + 120 + 330 and 0.25 · 50 + 100 = 587.5, once rounded to even.
  expect_unit(costs, 1, 1, 0, {412, 588, 110 + 360, 10 * 64 + 3000});
  EXPECT_EQ(costs.modules[1].stages[1].units[0].recompute, (RecomputeBytes{10 * 136, 10 * 136}));
  expect_launch(costs, 1, 1, 29, 49 + 14, 89);

  plan.modules[1].recompute = {0, 2};
  costs = step_costs(paper_model(), plan, profile, paper_batch());
  // The head keeps 16 numbers for each of 3 target tokens and brings back 936 bytes for each.
  expect_unit(costs, 1, 1, 0, {412, 888, 470, 10 * 64 + 3 * 64});
  EXPECT_EQ(costs.modules[1].stages[1].units[0].recompute,
            (RecomputeBytes{10 * 136 + 3 * 936, 3 * 936}));
  profile.layers[4].recompute = {0, 1, 5};
  costs = step_costs(paper_model(), plan, profile, paper_batch());
  expect_unit(costs, 1, 1, 0, {412, 475 + 10 + 300, 470, 10 * 64 + 3 * 64});
  expect_launch(costs, 1, 1, 29, 49 + 5 + 15, 89);
}

TEST(StepCosts, RecomputeNothingThatTakesNoPartInBackward) {
  ModelSpec model = paper_model();
  model.encoders[0].frozen = true;
  model.encoders[0].projector_frozen = true;
  Plan plan = paper_plan();
  plan.modules[0].recompute = {2, 1};
  const StepCosts costs = step_costs(model, plan, paper_profile(), paper_batch());
  expect_unit(costs, 0, 0, 0, {24, 0, 0, 0});
  expect_unit(costs, 0, 1, 0, {36, 0, 0, 0});
  expect_launch(costs, 0, 0, 21, 0, 0);
  EXPECT_EQ(costs.modules[0].stages[0].units[0].recompute, RecomputeBytes{});
}

TEST(StepCosts, ShareTheInputOfRecomputedLayersAmongTheDevicesOfALane) {
  ModelSpec model = paper_model();
  model.llm.num_kv_heads = 2;
  Plan plan = paper_plan();
  plan.modules[1].tensor_parallel = 2;
  plan.modules[1].context_parallel = 4;
  plan.modules[1].recompute = {0, 1};
  Profile profile = paper_profile();
  for (std::size_t i = 3; i < 6; ++i) {
    LayerProfile entry = profile.layers[i];
    entry.tensor_parallel = 2;
    entry.context_parallel = 4;
    entry.activation_bytes_per_token = 50;
    profile.layers.push_back(entry);
  }
  const StepCosts costs = step_costs(model, plan, profile, paper_batch());
  EXPECT_EQ(costs.modules[1].stages[1].units[0].activation_bytes, 10 * 16 * 4 / 8 + 3 * 50);
  EXPECT_EQ(costs.modules[1].stages[1].units[0].recompute, (RecomputeBytes{10 * 42, 10 * 42}));
}

// Chunks read the keys and values of earlier ones: 2 · 8 numbers a token, beside 16 of the input.
TEST(StepCosts, KeepKeysAndValuesOfRecomputedDecodersWhereChunksReadThem) {
  Plan plan = paper_plan();
  plan.modules[1].recompute = {0, 2};
  plan.limits.chunks = true;
  Profile profile = paper_profile();
  profile.layers[4].activation_bytes_per_token = 200;
  const StepCosts costs = step_costs(paper_model(), plan, profile, paper_batch());
  EXPECT_EQ(costs.modules[1].stages[1].units[0].activation_bytes, 10 * 128 + 3 * 64);
  EXPECT_EQ(costs.modules[1].stages[1].units[0].recompute,
            (RecomputeBytes{10 * 72 + 3 * 936, 3 * 936}));
  // The first chunk has no target token: its largest layer is the decoder.
  const UnitCost first = unit_cost(costs, 1, 1, {.sample = 0, .token_begin = 0, .token_end = 4});
  EXPECT_EQ(first.activation_bytes, 4 * 128);
  EXPECT_EQ(first.recompute, (RecomputeBytes{4 * 72, 4 * 72}));
  const UnitCost last = unit_cost(costs, 1, 1, {.sample = 0, .token_begin = 4, .token_end = 10});
  EXPECT_EQ(last.recompute, (RecomputeBytes{6 * 72 + 3 * 936, 3 * 936}));
  EXPECT_EQ(first.time.backward_input + last.time.backward_input,
            costs.modules[1].stages[1].units[0].time.backward_input);
}

TEST(StepCosts, KnowMessagesFromTheModelAlone) {
  Profile profile = paper_profile();
  StepCosts costs = step_costs(paper_model(), paper_plan(), profile, paper_batch());
  EXPECT_EQ(costs.modules[0].stages[0].units[1].output_bytes, 8 * 8 * 4);
  EXPECT_EQ(costs.modules[0].stages[1].units[1].output_bytes, 2 * 16 * 4);
  EXPECT_EQ(costs.modules[1].stages[0].units[0].output_bytes, 10 * 16 * 4);
  EXPECT_EQ(costs.modules[1].stages[1].units[0].output_bytes, 0);
  profile.dtype = "bfloat16";
  costs = step_costs(paper_model(), paper_plan(), profile, paper_batch());
  EXPECT_EQ(costs.modules[0].stages[1].units[1].output_bytes, 2 * 16 * 2);
}

TEST(StepCosts, ChargeParametersOnceAStep) {
  const ModelSpec model = paper_model();
  Plan plan = paper_plan();
  Profile profile = paper_profile();
  profile.reduce_bytes_per_second = 2e9;
  profile.optimizer_ns_per_parameter = 0.5;
  StepCosts costs = step_costs(model, plan, profile, paper_batch());
  const std::int64_t parameters = layer_parameters(model, 1, 1) + layer_parameters(model, 1, 2);
  const StageCosts& last = costs.modules[1].stages[1];
  EXPECT_EQ(last.parameter_bytes, 4 * parameters);
  EXPECT_EQ(last.trainable_parameters, parameters);
  EXPECT_EQ(last.optimizer.count(), parameters / 2);
  EXPECT_EQ(last.reduce.count(), 0);
  plan.replicas = 2;
  costs = step_costs(model, plan, profile, paper_batch());
  EXPECT_EQ(costs.modules[1].stages[1].reduce.count(), 2 * parameters);
  EXPECT_EQ(costs.reduce_buckets, 0);
  // Half as reduce-scatter, half as gather behind an update of half as many.
  plan.shard_optimizer = true;
  costs = step_costs(model, plan, profile, paper_batch());
  EXPECT_EQ(costs.reduce_buckets, kReduceBuckets);
  EXPECT_EQ(costs.modules[1].stages[1].reduce.count(), parameters);
  EXPECT_EQ(costs.modules[1].stages[1].optimizer.count(), parameters / 4 + parameters);
  plan.replicas = 1;
  costs = step_costs(model, plan, profile, paper_batch());
  EXPECT_EQ(costs.modules[1].stages[1].reduce.count(), 0);
  EXPECT_EQ(costs.modules[1].stages[1].optimizer.count(), parameters / 2);
  EXPECT_EQ(costs.reduce_buckets, 0);
}

TEST(StepCosts, NumberUnitsBySampleAndSegment) {
  const StepCosts costs = step_costs(paper_model(), paper_plan(), paper_profile(), paper_batch());
  EXPECT_EQ(costs.num_samples, 2);
  EXPECT_EQ(costs.num_units(0), 2);
  EXPECT_EQ(costs.num_units(1), 2);
  EXPECT_EQ(costs.unit_of(0, {.sample = 0, .segment = 1}), 1);
  EXPECT_EQ(costs.unit_of(1, {.sample = 1}), 1);
  EXPECT_EQ(costs.modules[0].tokens, (std::vector<std::int64_t>{4, 8}));
  EXPECT_EQ(costs.modules[1].tokens, (std::vector<std::int64_t>{10, 6}));
}

TEST(StepCosts, RefuseWhatTheProfileLacks) {
  const ModelSpec model = paper_model();
  Profile profile = paper_profile();
  profile.layers.pop_back();
  try {
    step_costs(model, paper_plan(), profile, paper_batch());
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("output_head"), std::string::npos) << error.what();
  }
  Plan plan = paper_plan();
  plan.modules[0].tensor_parallel = 2;
  EXPECT_THROW(step_costs(model, plan, paper_profile(), paper_batch()), InvalidInput);
  plan = paper_plan();
  plan.modules[1].context_parallel = 2;
  EXPECT_THROW(step_costs(model, plan, paper_profile(), paper_batch()), InvalidInput);
  profile = paper_profile();
  profile.dtype = "int3";
  EXPECT_THROW(step_costs(model, paper_plan(), profile, paper_batch()), InvalidInput);
}

// Small costs at degree 1 and, other numbers, at tensor 2 × context 4 in every module.
Profile profile_of_two_degrees() {
  Profile profile = paper_profile();
  for (std::size_t i = 0; i < 6; ++i) {
    LayerProfile entry = profile.layers[i];
    entry.tensor_parallel = 2;
    entry.context_parallel = 4;
    entry.forward.per_token_ns += 1000;
    entry.forward.per_launch_ns += 7;
    entry.activation_bytes_per_token = 2;
    profile.layers.push_back(entry);
  }
  return profile;
}

TEST(StepCosts, TakeTheEntriesOfTheModulesDegrees) {
  ModelSpec model = paper_model();
  model.llm.num_kv_heads = 2;
  Plan plan = paper_plan();
  plan.modules[0].tensor_parallel = 2;
  plan.modules[0].context_parallel = 4;
  const StepCosts costs = step_costs(model, plan, profile_of_two_degrees(), paper_batch());
  expect_unit(costs, 0, 0, 0, {24 + 2 * 4 * 1000, 36, 44, 2 * 2 * 4});
  expect_launch(costs, 0, 0, 21 + 2 * 7, 21, 81);
  expect_unit(costs, 1, 0, 0, {20, 10, 30, 10});
  plan.modules[0].context_parallel = 2;
  EXPECT_THROW(step_costs(model, plan, profile_of_two_degrees(), paper_batch()), InvalidInput);
}

TEST(StepCosts, ShareBytesAmongTheDevicesOfALane) {
  ModelSpec model = paper_model();
  model.llm.num_kv_heads = 2;
  Plan plan = paper_plan();
  for (ModulePlan& module : plan.modules) {
    module.tensor_parallel = 2;
    module.context_parallel = 4;
  }
  Profile profile = profile_of_two_degrees();
  StepCosts costs = step_costs(model, plan, profile, paper_batch());
  EXPECT_EQ(costs.modules[0].stages[0].units[1].output_bytes, 8 * 8 * 4 / 8);
  EXPECT_EQ(costs.modules[0].stages[1].units[0].output_bytes, 1 * 16 * 4 / 8);
  EXPECT_EQ(costs.modules[1].stages[0].units[0].output_bytes, 10 * 16 * 4 / 8);
  // One key and value head of 8 numbers on each tensor rank, a quarter of the tokens.
  EXPECT_EQ(costs.modules[1].stages[1].key_value_bytes_per_token, 2 * 8 * 4 / 4);
  // A wide encoder in front of an LLM on one device sends whole messages.
  plan.modules[1].tensor_parallel = 1;
  plan.modules[1].context_parallel = 1;
  costs = step_costs(model, plan, profile, paper_batch());
  EXPECT_EQ(costs.modules[0].stages[1].units[0].output_bytes, 1 * 16 * 4);
  EXPECT_EQ(costs.modules[0].stages[0].units[1].output_bytes, 8 * 8 * 4 / 8);
}

TEST(StepCosts, ReduceOverReplicasAndContextRanks) {
  ModelSpec model = paper_model();
  model.llm.num_kv_heads = 2;
  Plan plan = paper_plan();
  plan.modules[1].tensor_parallel = 2;
  plan.modules[1].context_parallel = 4;
  Profile profile = profile_of_two_degrees();
  profile.reduce_bytes_per_second = 1e9;
  const StepCosts costs = step_costs(model, plan, profile, paper_batch());
  // Norms stand on both tensor ranks: two of the decoder, one of the head.
  const std::int64_t norms = 3 * 16;
  const std::int64_t parameters =
      (layer_parameters(model, 1, 1) + layer_parameters(model, 1, 2) - norms) / 2 + norms;
  EXPECT_EQ(costs.modules[1].stages[1].trainable_parameters, parameters);
  EXPECT_EQ(costs.modules[1].stages[1].parameter_bytes, 4 * parameters);
  EXPECT_EQ(costs.modules[1].stages[1].reduce.count(), 4 * parameters);
  EXPECT_EQ(costs.modules[0].stages[0].reduce.count(), 0) << "one replica, one context rank";
}

TEST(StepCosts, RefuseABatchBeyondTwoToThe62Nanoseconds) {
  // 2^60 ns per target token and 5 of them: each unit fits, the batch does not.
  Profile profile = paper_profile();
  profile.layers.back().forward.per_token_ns = 1152921504606846976.0;
  EXPECT_THROW(step_costs(paper_model(), paper_plan(), profile, paper_batch()), InvalidInput);
  profile.layers.back().forward.per_token_ns = 1152921504606846976.0 / 2;
  EXPECT_NO_THROW(step_costs(paper_model(), paper_plan(), profile, paper_batch()));
  profile.layers.back().forward.per_token_ns = 1e30;
  EXPECT_THROW(step_costs(paper_model(), paper_plan(), profile, paper_batch()), InvalidInput);
}

// Stages of one cost differ in what they send: features where a module ends.
TEST(StepCosts, KnowMessagesOfStagesThatCostTheSame) {
  Profile free = paper_profile();
  for (LayerProfile& layer : free.layers) {
    layer.forward = layer.backward_input = layer.backward_weight = {};
    layer.activation_bytes_per_token = 0;
  }
  const StepCosts costs = step_costs(paper_model(), paper_plan(), paper_profile(), paper_batch());
  const StepCosts of_free = step_costs(paper_model(), paper_plan(), free, paper_batch());
  for (std::size_t module = 0; module < costs.modules.size(); ++module) {
    for (std::size_t stage = 0; stage < costs.modules[module].stages.size(); ++stage) {
      const SharedVector<UnitCost>& units = costs.modules[module].stages[stage].units;
      for (std::size_t unit = 0; unit < units.size(); ++unit) {
        EXPECT_EQ(of_free.modules[module].stages[stage].units[unit].output_bytes,
                  units[unit].output_bytes);
      }
    }
  }
}

// Everything that a batch costs once, or as if every unit were launched alone, is part of the
// total, here 2^60 or 2^61 at a time: no single number is too large.
TEST(StepCosts, CountTimesOfEveryKindInTheTotal) {
  constexpr double kTwoTo60 = 1152921504606846976.0;
  const auto refused = [](const Profile& profile, int replicas = 1) {
    Plan plan = paper_plan();
    plan.replicas = replicas;
    return oracle::error_of<InvalidInput>(
        [&] { step_costs(paper_model(), plan, profile, paper_batch()); });
  };
  for (CostCurve LayerProfile::*curve :
       {&LayerProfile::forward, &LayerProfile::backward_input, &LayerProfile::backward_weight}) {
    Profile units = paper_profile();
    (units.layers.back().*curve).per_token_ns = kTwoTo60;  // 5 target tokens
    EXPECT_NE(refused(units).find("the batch needs more than 2^62 ns"), std::string::npos);
    Profile launches = paper_profile();
    (launches.layers.back().*curve).per_launch_ns = 2 * kTwoTo60;  // 2 samples
    EXPECT_NE(refused(launches).find("the batch needs more than 2^62 ns"), std::string::npos);
  }
  double parameters = 0;  // of the largest stage: with those of the others too much
  for (const ModuleCosts& module :
       step_costs(paper_model(), paper_plan(), paper_profile(), paper_batch()).modules) {
    for (const StageCosts& stage : module.stages) {
      parameters = std::max(parameters, static_cast<double>(stage.trainable_parameters));
    }
  }
  Profile optimizer = paper_profile();
  optimizer.optimizer_ns_per_parameter = 3.99 * kTwoTo60 / parameters;
  EXPECT_NE(refused(optimizer).find("the batch needs more than 2^62 ns"), std::string::npos);
  Profile reduce = paper_profile();
  reduce.reduce_bytes_per_second = 4 * 1e9 * parameters / (3.99 * kTwoTo60);
  EXPECT_NE(refused(reduce, 2).find("the batch needs more than 2^62 ns"), std::string::npos);
  EXPECT_NO_THROW(step_costs(paper_model(), paper_plan(), reduce, paper_batch())) << "one replica";
}

TEST(StepCosts, CountBytesOfEveryKindInTheTotal) {
  constexpr double kTwoTo60 = 1152921504606846976.0;
  const auto refused = [](const Profile& profile, const Plan& plan, int segment_tokens_shift) {
    std::vector<SampleWork> batch = paper_batch();
    for (SegmentWork& segment : batch[0].segments[0]) {
      segment.tokens <<= segment_tokens_shift;
    }
    return oracle::error_of<InvalidInput>([&] { step_costs(paper_model(), plan, profile, batch); });
  };
  Profile kept = paper_profile();
  kept.layers.back().activation_bytes_per_token = kTwoTo60;  // 5 target tokens
  EXPECT_NE(refused(kept, paper_plan(), 0).find("the batch needs more than 2^62 bytes"),
            std::string::npos);
  Plan recomputing = paper_plan();
  recomputing.modules[1].recompute = {0, 2};
  EXPECT_NE(refused(kept, recomputing, 0).find("the batch needs more than 2^62 bytes"),
            std::string::npos);
  // Messages of 4 and 8 << 55 tokens of 8 floats, from a profile in which nothing else grows.
  Profile messages = paper_profile();
  for (LayerProfile& layer : messages.layers) {
    layer.forward = layer.backward_input = layer.backward_weight = {};
    layer.activation_bytes_per_token = 0;
  }
  EXPECT_NE(refused(messages, paper_plan(), 54).find("the batch needs more than 2^62 bytes"),
            std::string::npos);
}

TEST(BatchWork, IsTheWorkOfEverySample) {
  SampleSizes sizes;
  sizes.id = "a";
  sizes.images = {{56, 56}};
  sizes.prompt_tokens = 5;
  sizes.response_tokens = 2;
  const std::vector<SampleSizes> batch = {sizes, sizes};
  const std::vector<SampleWork> work = batch_work(paper_model(), batch);
  ASSERT_EQ(work.size(), 2U);
  EXPECT_EQ(work[1], sample_work(paper_model(), sizes));
}

TEST(StepCosts, RunsAreEqualUnitsOfASample) {
  const StepCosts costs =
      step_costs(paper_model(), paper_plan(), paper_profile(), oracle::batch_of_runs());
  EXPECT_EQ(costs.modules[0].runs, (std::vector<int>{2, 1, 1, 3, 1}));
  EXPECT_EQ(costs.modules[1].runs, (std::vector<int>{1, 1, 1}));
  for (const StageCosts& stage : costs.modules[0].stages) {
    costs.modules[0].for_each_run([&](std::size_t unit, int count) {
      for (int other = 1; other < count; ++other) {
        const UnitCost& like = stage.units[unit + static_cast<std::size_t>(other)];
        EXPECT_EQ(like.time.forward, stage.units[unit].time.forward);
        EXPECT_EQ(like.activation_bytes, stage.units[unit].activation_bytes);
        EXPECT_EQ(like.output_bytes, stage.units[unit].output_bytes);
      }
    });
  }
}

// The LLM's second stage: one decoder of 1 key and value head of 8 numbers, and the output head.
TEST(StepCosts, KnowHowASampleSpreadsOverItsTokens) {
  const StepCosts costs = step_costs(paper_model(), paper_plan(), paper_profile(), paper_batch());
  EXPECT_EQ(costs.modules[1].stages[0].key_value_bytes_per_token, 0);
  EXPECT_EQ(costs.modules[1].stages[1].key_value_bytes_per_token, 2 * 8 * 4);
  EXPECT_EQ(costs.modules[0].stages[0].key_value_bytes_per_token, 0);
  // Tokens 4 to 8 of 10 hold one of the 3 target tokens, (64 - 16) / 2 pairs.
  const UnitCost cost = unit_cost(costs, 1, 1, {.sample = 0, .token_begin = 4, .token_end = 8});
  EXPECT_EQ(cost.time.forward, nanoseconds{24 / 4 + 4 * 10 + 100});
  EXPECT_EQ(cost.time.backward_input, nanoseconds{24 / 2 + 4 * 12 + 110});
  EXPECT_EQ(cost.time.backward_weight, nanoseconds{4 * 11 + 120});
  EXPECT_EQ(cost.activation_bytes, 4 * 20 + 1000);
  EXPECT_EQ(cost.output_bytes, 0);
  EXPECT_EQ(unit_cost(costs, 1, 0, {.sample = 0, .token_begin = 4, .token_end = 8}).output_bytes,
            4 * 16 * 4);
}

}  // namespace
}  // namespace entrain
