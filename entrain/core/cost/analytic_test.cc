#include "entrain/core/cost/analytic.h"

#include <chrono>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/cost/layer_work.h"
#include "entrain/core/cost/sharding.h"

#include "tests/oracle/tiny_models.h"

namespace entrain {
namespace {

// 1 FLOP and 1 byte a nanosecond, so that costs are counts.
DeviceModel counting_device() {
  DeviceModel device;
  device.name = "counting";
  device.peak_flops = 2e9;
  device.efficiency = 0.5;
  device.memory_bytes_per_second = 1e9;
  device.launch_seconds = 5e-9;
  return device;
}

TEST(AnalyticProfile, CountsGradientsLikeTheForward) {
  const ModelSpec model = oracle::small_model();
  const Profile profile = analytic_profile(model, counting_device());
  const LayerProfile& decoder = find_layer(profile, "llm", LayerKind::kDecoder);
  const LayerWork work = layer_work(model, 2, 1, 4);
  EXPECT_DOUBLE_EQ(decoder.forward.per_token_ns, work.matrix_flops + work.moved_bytes);
  EXPECT_DOUBLE_EQ(decoder.forward.per_pair_ns, 4 * 24);
  EXPECT_DOUBLE_EQ(decoder.forward.per_launch_ns, 5);
  EXPECT_DOUBLE_EQ(decoder.backward_input.per_token_ns, work.matrix_flops + 2 * work.moved_bytes);
  EXPECT_DOUBLE_EQ(decoder.backward_input.per_pair_ns, 2 * 4 * 24);
  EXPECT_DOUBLE_EQ(decoder.backward_weight.per_token_ns, work.matrix_flops);
  EXPECT_DOUBLE_EQ(decoder.backward_weight.per_pair_ns, 0);
  EXPECT_DOUBLE_EQ(profile.optimizer_ns_per_parameter, 28);
}

TEST(AnalyticProfile, IsValidForItsModelOnEveryKnownDevice) {
  const ModelSpec model = oracle::small_model();
  for (const std::string& name : device_model_names()) {
    const Profile profile = analytic_profile(model, device_model(name));
    EXPECT_NO_THROW(validate(profile, model, name));
    EXPECT_EQ(profile.device, name);
    EXPECT_EQ(profile.source, "analytic");
    EXPECT_EQ(profile.layers.size(), 9U);
    EXPECT_EQ(to_json(profile_from_json(to_json(profile), name)), to_json(profile));
  }
}

TEST(AnalyticProfile, HoldsWindowedLayersByThemselves) {
  ModelSpec model = oracle::small_model();
  model.encoders[0].window_size = 8;
  model.encoders[0].full_attention_layers = {1};
  const Profile profile = analytic_profile(model, counting_device());
  EXPECT_EQ(profile.layers.size(), 10U);
  EXPECT_NO_THROW(validate(profile, model, "p"));
  EXPECT_EQ(find_layer(profile, "vision", LayerKind::kWindowedTransformer).forward.per_pair_ns,
            find_layer(profile, "vision", LayerKind::kEncoderTransformer).forward.per_pair_ns);
  model.encoders[0].full_attention_layers.clear();
  EXPECT_EQ(analytic_profile(model, counting_device()).layers.size(), 9U);
}

TEST(AnalyticProfile, HoldsEveryPairOfDegreesThatDivides) {
  const ModelSpec model = oracle::small_model();  // 2 heads in the encoders, 2 of keys and values
  const Profile profile = analytic_profile(model, counting_device(), {{1, 2, 3, 4, 2}, {1, 8}});
  EXPECT_EQ(profile.layers.size(), 9U * 2 * 2);
  EXPECT_NO_THROW(validate(profile, model, "p"));
  EXPECT_NO_THROW(find_layer(profile, "llm", LayerKind::kDecoder, 2, 8));
  EXPECT_THROW(find_layer(profile, "llm", LayerKind::kDecoder, 4, 1), InvalidInput);
  EXPECT_THROW(analytic_profile(model, counting_device(), {{}, {1}}), InvalidInput);
  EXPECT_THROW(analytic_profile(model, counting_device(), {{1}, {1, 0}}), InvalidInput);
}

TEST(AnalyticProfile, AddsTheExchangeOfALaneToItsShareOfTheWork) {
  const ModelSpec model = oracle::small_model();
  DeviceModel device = counting_device();
  device.link = {.latency = std::chrono::nanoseconds(100), .bytes_per_second = 5e8};
  const Profile profile = analytic_profile(model, device, {{2}, {4}});
  const LayerProfile& decoder = find_layer(profile, "llm", LayerKind::kDecoder, 2, 4);
  const LayerWork work = layer_work(model, 2, 1, 4);
  const LayerExchange exchange = layer_exchange(model, 2, 1, 4, 2, 4);
  // Two nanoseconds a byte of the link.
  EXPECT_DOUBLE_EQ(
      decoder.forward.per_token_ns,
      (work.matrix_flops + work.moved_bytes) / 8 + 2 * exchange.forward.bytes_per_token);
  EXPECT_DOUBLE_EQ(
      decoder.backward_input.per_token_ns,
      (work.matrix_flops + 2 * work.moved_bytes) / 8 + 2 * exchange.backward_input.bytes_per_token);
  EXPECT_DOUBLE_EQ(decoder.backward_weight.per_token_ns,
                   work.matrix_flops / 8 + 2 * exchange.backward_weight.bytes_per_token);
  EXPECT_DOUBLE_EQ(decoder.forward.per_pair_ns, 4 * 24 / 8.0);
  EXPECT_DOUBLE_EQ(decoder.forward.per_launch_ns, 5 + 5 * 100);
  EXPECT_DOUBLE_EQ(decoder.backward_input.per_launch_ns, 5 + 6 * 100);
  EXPECT_DOUBLE_EQ(decoder.backward_weight.per_launch_ns, 5 + 2 * 100);
  EXPECT_DOUBLE_EQ(decoder.activation_bytes_per_token, work.activation_bytes / 8);
}

TEST(AnalyticProfile, NamesItsDevices) {
  try {
    device_model("a41");
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("a40"), std::string::npos) << error.what();
  }
  DeviceModel device = counting_device();
  device.efficiency = 1.5;
  EXPECT_THROW(analytic_profile(oracle::small_model(), device), InvalidInput);
  device = counting_device();
  device.peak_flops = 0;
  EXPECT_THROW(analytic_profile(oracle::small_model(), device), InvalidInput);
  device = counting_device();
  device.dtype = "int8";
  EXPECT_THROW(analytic_profile(oracle::small_model(), device), InvalidInput);
}

}  // namespace
}  // namespace entrain
