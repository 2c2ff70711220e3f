#include "entrain/core/cost/sharding.h"

#include <gtest/gtest.h>

#include "entrain/core/spec/parameters.h"

#include "tests/oracle/paper_costs.h"

namespace entrain {
namespace {

constexpr double kBytes = 2;

ModelSpec one_encoder_model() {
  return oracle::eight_head_model(1);
}

constexpr int kVision = 0;
constexpr int kLlm = 1;

void expect_exchange(const Exchange& actual, double bytes, int collectives) {
  EXPECT_DOUBLE_EQ(actual.bytes_per_token, bytes);
  EXPECT_EQ(actual.collectives, collectives);
}

TEST(ShardingObstacle, NamesWhatDoesNotDivide) {
  const ModelSpec model = one_encoder_model();
  for (const int tensor : {1, 2, 4}) {
    EXPECT_EQ(sharding_obstacle(model, kVision, tensor), "");
    EXPECT_EQ(sharding_obstacle(model, kLlm, tensor), "");
  }
  EXPECT_EQ(sharding_obstacle(model, kVision, 8), "");
  EXPECT_EQ(sharding_obstacle(model, kLlm, 8), "num_kv_heads 4 of 'llm' is not divisible by 8");
  EXPECT_EQ(sharding_obstacle(model, kLlm, 3), "num_heads 8 of 'llm' is not divisible by 3");
  EXPECT_EQ(sharding_obstacle(model, kVision, 5), "num_heads 8 of 'vision' is not divisible by 5");
  ModelSpec odd = model;
  odd.llm.vocab_size = 201;
  EXPECT_EQ(sharding_obstacle(odd, kLlm, 2), "vocab_size 201 of 'llm' is not divisible by 2");
  odd = model;
  odd.llm.intermediate = 90;
  EXPECT_EQ(sharding_obstacle(odd, kLlm, 4), "intermediate 90 of 'llm' is not divisible by 4");
}

TEST(ParametersPerDevice, CutMatricesAndRepeatNorms) {
  const ModelSpec model = one_encoder_model();
  EXPECT_EQ(count_parameters(model, kVision, 0).per_device(4), layer_parameters(model, kVision, 0));
  EXPECT_EQ(count_parameters(model, kVision, 1).per_device(4),
            2 * 64 + (4 * 64 * 64 + 3 * 64 * 96) / 4);
  // Four patches of 64 merge into 256: 256 × 256 with its bias, 256 × 64, whose bias is repeated.
  EXPECT_EQ(count_parameters(model, kVision, 2).per_device(4),
            64 + (256 * 256 + 256 + 256 * 64) / 4 + 64);
  EXPECT_EQ(count_parameters(model, kLlm, 0).per_device(4), 200 * 64 / 4);
  EXPECT_EQ(count_parameters(model, kLlm, 1).per_device(4),
            2 * 64 + (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96) / 4);
  EXPECT_EQ(count_parameters(model, kLlm, 2).per_device(4), 64 + 200 * 64 / 4);
  for (int module : {kVision, kLlm}) {
    for (int layer = 0; layer < 3; ++layer) {
      EXPECT_EQ(count_parameters(model, module, layer).per_device(1),
                layer_parameters(model, module, layer));
    }
  }
}

TEST(DeviceWork, DividesByBothDegrees) {
  const ModelSpec model = one_encoder_model();
  for (int module : {kVision, kLlm}) {
    for (int layer = 0; layer < 3; ++layer) {
      const LayerWork whole = layer_work(model, module, layer, kBytes);
      const LayerWork work = device_work(model, module, layer, kBytes, 4, 2);
      const double lookups = module == kLlm && layer == 0 ? 2 : 8;
      EXPECT_DOUBLE_EQ(work.matrix_flops, whole.matrix_flops / 8);
      EXPECT_DOUBLE_EQ(work.attention_flops, whole.attention_flops / 8);
      EXPECT_DOUBLE_EQ(work.moved_bytes, whole.moved_bytes / lookups);
      EXPECT_DOUBLE_EQ(work.weight_moved_bytes, whole.weight_moved_bytes / lookups);
      EXPECT_DOUBLE_EQ(work.input_bytes, whole.input_bytes / lookups);
      EXPECT_DOUBLE_EQ(work.activation_bytes, whole.activation_bytes / lookups);
      EXPECT_DOUBLE_EQ(work.output_bytes, whole.output_bytes / 8);
    }
  }
}

TEST(DeviceWork, ConvolvesAllTokensOfTheContextShare) {
  ModelSpec model = one_encoder_model();
  model.encoders[kVision].modality = Modality::kAudio;
  const LayerWork whole = layer_work(model, kVision, 0, kBytes);
  const LayerWork work = device_work(model, kVision, 0, kBytes, 4, 2);
  EXPECT_DOUBLE_EQ(work.matrix_flops, whole.matrix_flops / 2);
  EXPECT_DOUBLE_EQ(work.moved_bytes, whole.moved_bytes / 2);
  EXPECT_DOUBLE_EQ(work.input_bytes, whole.input_bytes / 2);
  EXPECT_DOUBLE_EQ(work.activation_bytes, whole.activation_bytes / 2);
  EXPECT_DOUBLE_EQ(work.output_bytes, whole.output_bytes / 8);
}

TEST(LayerExchange, IsNothingOnOneDevice) {
  const ModelSpec model = one_encoder_model();
  for (int module : {kVision, kLlm}) {
    for (int layer = 0; layer < 3; ++layer) {
      const LayerExchange exchange = layer_exchange(model, module, layer, kBytes, 1, 1);
      expect_exchange(exchange.forward, 0, 0);
      expect_exchange(exchange.backward_input, 0, 0);
      expect_exchange(exchange.backward_weight, 0, 0);
    }
  }
}

// A gather of 64 numbers of 2 bytes among 4 tensor ranks brings three quarters of 128 bytes.
TEST(LayerExchange, CountsTwoAllReducesATransformerLayer) {
  const ModelSpec model = one_encoder_model();
  for (int module : {kVision, kLlm}) {
    const LayerExchange exchange = layer_exchange(model, module, 1, kBytes, 4, 1);
    expect_exchange(exchange.forward, 4 * 96, 4);
    expect_exchange(exchange.backward_input, 4 * 96, 4);
    expect_exchange(exchange.backward_weight, 2 * 96, 2);
  }
}

TEST(LayerExchange, FollowsColumnsRowsAndVocabulary) {
  const ModelSpec model = one_encoder_model();
  LayerExchange exchange = layer_exchange(model, kVision, 0, kBytes, 4, 2);
  expect_exchange(exchange.forward, 0, 0);
  expect_exchange(exchange.backward_weight, 0, 0);
  exchange = layer_exchange(model, kVision, 2, kBytes, 4, 1);
  expect_exchange(exchange.forward, 96 + 96.0 / 4, 2);  // a feature a merge of four
  expect_exchange(exchange.backward_input, 96 + 96.0 / 4, 2);
  expect_exchange(exchange.backward_weight, 96, 1);
  exchange = layer_exchange(model, kLlm, 0, kBytes, 4, 1);
  expect_exchange(exchange.forward, 96, 1);
  expect_exchange(exchange.backward_input, 0, 0);
  expect_exchange(exchange.backward_weight, 96, 1);
  exchange = layer_exchange(model, kLlm, 2, kBytes, 4, 1);
  expect_exchange(exchange.forward, 96 + 3 * 2 * 3, 1 + 3);
  expect_exchange(exchange.backward_input, 96, 1);
  expect_exchange(exchange.backward_weight, 96, 1);
}

// Keys and values of 4 heads of 8, 2 bytes each: 128 bytes a token, two thirds of them elsewhere.
TEST(LayerExchange, BringsKeysAndValuesOfOtherContextRanks) {
  const ModelSpec model = one_encoder_model();
  LayerExchange exchange = layer_exchange(model, kLlm, 1, kBytes, 1, 3);
  expect_exchange(exchange.forward, 128.0 / 3 * 2, 1);
  expect_exchange(exchange.backward_input, 2 * 128.0 / 3 * 2, 2);
  expect_exchange(exchange.backward_weight, 0, 0);
  exchange = layer_exchange(model, kLlm, 1, kBytes, 4, 3);
  expect_exchange(exchange.forward, 4 * 96.0 / 3 + 128.0 / 4 / 3 * 2, 5);
  exchange = layer_exchange(model, kVision, 1, kBytes, 1, 2);
  expect_exchange(exchange.forward, 2 * 64 * 2 / 2.0, 1);
  exchange = layer_exchange(model, kLlm, 2, kBytes, 1, 2);
  expect_exchange(exchange.forward, 0, 0);
}

}  // namespace
}  // namespace entrain
