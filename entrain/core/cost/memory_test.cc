#include "entrain/core/cost/memory.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/paper_costs.h"

namespace entrain {
namespace {

ModelSpec two_encoder_model() {
  return oracle::eight_head_model(2);
}

// Decoders of the LLM: norms, four attention matrices and the MLP's three.
constexpr std::int64_t kNorms = 2 * 64;
constexpr std::int64_t kDecoderMatrices = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96;

// Vision on lane 0; the LLM's embedding and first decoder on lane 1, the rest on lane 2.
Plan small_plan() {
  Plan plan;
  plan.replicas = 4;
  plan.modules = {{"vision", 1, 1, {{0, 4}}}, {"llm", 1, 1, {{0, 2}, {2, 4}}}};
  plan.lanes = default_lanes(plan.modules);
  return plan;
}

TEST(LaneStates, HoldWeightsGradientsAndTwoMomentsInFloat32) {
  const std::vector<StateBytes> states = lane_states(two_encoder_model(), small_plan(), {});
  ASSERT_EQ(states.size(), 3U);
  const std::int64_t parameters = 200 * 64 + kNorms + kDecoderMatrices;
  EXPECT_EQ(states[1], (StateBytes{4 * parameters, 4 * parameters, 8 * parameters}));
  EXPECT_EQ(states[1].total_bytes(), 16 * parameters);
  EXPECT_EQ(states[2].parameter_bytes, 4 * (kNorms + kDecoderMatrices + 64 + 200 * 64));
}

TEST(LaneStates, AddAMasterCopyToNarrowWeights) {
  StateOptions options;
  options.parameter_dtype = "bfloat16";
  const std::int64_t parameters = 200 * 64 + kNorms + kDecoderMatrices;
  EXPECT_EQ(lane_states(two_encoder_model(), small_plan(), options)[1],
            (StateBytes{2 * parameters, 4 * parameters, 12 * parameters}));
}

TEST(LaneStates, ShareTheOptimizerAmongReplicasAndContextRanks) {
  Plan plan = small_plan();
  plan.modules[1].context_parallel = 2;
  StateOptions options;
  options.shard_optimizer = true;
  const std::int64_t parameters = 200 * 64 + kNorms + kDecoderMatrices;
  EXPECT_EQ(lane_states(two_encoder_model(), plan, options)[1],
            (StateBytes{4 * parameters, 4 * parameters, parameters}));
  plan.replicas = 3;
  EXPECT_EQ(lane_states(two_encoder_model(), plan, options)[1].optimizer_bytes,
            (8 * parameters + 5) / 6);
}

TEST(LaneStates, DivideMatricesByTensorParallelism) {
  Plan plan = small_plan();
  plan.modules[1].tensor_parallel = 4;
  const std::int64_t parameters = 200 * 64 / 4 + kNorms + kDecoderMatrices / 4;
  EXPECT_EQ(lane_states(two_encoder_model(), plan, {})[1].parameter_bytes, 4 * parameters);
}

TEST(LaneStates, KeepNoGradientsOfFrozenLayers) {
  ModelSpec model = two_encoder_model();
  model.encoders[0].frozen = true;
  model.llm.frozen = true;
  const std::vector<StateBytes> states = lane_states(model, small_plan(), {});
  const std::int64_t projector = layer_parameters(model, 0, 3);
  EXPECT_EQ(states[0].gradient_bytes, 4 * projector);
  EXPECT_EQ(states[0].optimizer_bytes, 8 * projector);
  EXPECT_GT(states[0].parameter_bytes, 4 * projector);
  EXPECT_EQ(states[1].gradient_bytes, 0);
  EXPECT_EQ(states[1].optimizer_bytes, 0);
}

TEST(LaneStates, KeepNoGradientsOfStoredPositions) {
  ModelSpec model = two_encoder_model();
  EncoderSpec& audio = model.encoders[0];
  audio.modality = Modality::kAudio;
  const StateBytes without = lane_states(model, small_plan(), {})[0];
  audio.stored_positions = true;
  const StateBytes with = lane_states(model, small_plan(), {})[0];
  EXPECT_EQ(with.parameter_bytes - without.parameter_bytes, 4 * 1500 * audio.hidden);
  EXPECT_EQ(with.gradient_bytes, without.gradient_bytes);
  EXPECT_EQ(with.optimizer_bytes, without.optimizer_bytes);
}

TEST(LaneStates, AddUpTheStagesOfALane) {
  const std::vector<StateBytes> apart = lane_states(two_encoder_model(), small_plan(), {});
  Plan plan = small_plan();
  plan.lanes = {{{0, 0}, {1, 0}, {1, 1}}};
  const std::vector<StateBytes> together = lane_states(two_encoder_model(), plan, {});
  ASSERT_EQ(together.size(), 1U);
  EXPECT_EQ(together[0].total_bytes(),
            apart[0].total_bytes() + apart[1].total_bytes() + apart[2].total_bytes());
  StateOptions options;
  options.parameter_dtype = "int3";
  EXPECT_THROW(lane_states(two_encoder_model(), plan, options), InvalidInput);
}

TEST(ActivationRoom, IsWhatStateAndReserveLeave) {
  const std::vector<StateBytes> states = {{10, 20, 30}, {1, 2, 3}};
  const ActivationRoom room = activation_room(states, 100, 15);
  EXPECT_TRUE(room.fits());
  EXPECT_EQ(room.lane_bytes, (std::vector<std::int64_t>{25, 79}));
}

TEST(ActivationRoom, NamesTheLanesThatAreShort) {
  const std::vector<StateBytes> states = {{10, 20, 30}, {1, 2, 3}, {50, 50, 50}};
  const ActivationRoom room = activation_room(states, 75, 15);
  EXPECT_FALSE(room.fits());
  EXPECT_TRUE(room.lane_bytes.empty());
  // Nothing left is no limit of 0 bytes: one byte at least is needed.
  EXPECT_EQ(room.short_lanes, (std::vector<LaneShortage>{{0, 1}, {2, 91}}));
}

TEST(ActivationRoom, HasNoLimitWithoutAMemorySize) {
  const std::vector<StateBytes> states = {{10, 20, 30}};
  const ActivationRoom room = activation_room(states, 0, 15);
  EXPECT_TRUE(room.fits());
  EXPECT_TRUE(room.lane_bytes.empty());
  EXPECT_THROW(activation_room(states, 100, -1), InvalidInput);
  EXPECT_THROW(activation_room(states, -100, 1), InvalidInput);
}

}  // namespace
}  // namespace entrain
