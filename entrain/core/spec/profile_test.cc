#include "entrain/core/spec/profile.h"

#include <filesystem>
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;

ModelSpec two_layer_model() {
  return model_from_json(parse_toml("name = 'm'\n"
                                    "[vision]\nnum_layers = 2\nhidden = 64\nnum_heads = 4\n"
                                    "intermediate = 96\n"
                                    "[llm]\nnum_layers = 2\nhidden = 64\nnum_heads = 4\n"
                                    "intermediate = 96\nvocab_size = 264\n",
                                    "m.toml"),
                         "m.toml");
}

Profile vision_profile() {
  const ModelSpec model = two_layer_model();
  Profile profile;
  profile.device = "cpu";
  profile.source = "measured";
  profile.model_digest = shape_digest(model);
  profile.command = "entrain profile --quick";
  profile.threads = 2;
  double value = 0.125;
  for (int module = 0; module < model.num_modules(); ++module) {
    for (const int layer : {0, 1, num_layers(model, module) - 1}) {
      LayerProfile entry;
      entry.module = module_name(model, module);
      entry.kind = layer_kind(model, module, layer);
      for (CostCurve* curve : {&entry.forward, &entry.backward_input, &entry.backward_weight}) {
        *curve = {value, value + 1, value + 2, value + 3};
        value *= 1.1;
      }
      entry.activation_bytes_per_token = value;
      entry.output_bytes_per_token = 256;
      profile.layers.push_back(entry);
    }
  }
  profile.link = {std::chrono::nanoseconds(1500), 4e9};
  profile.reduce_bytes_per_second = 3e9;
  profile.optimizer_ns_per_parameter = 0.7;
  return profile;
}

std::string profile_message_after(const std::string& pointer, const std::string& value) {
  Json document = to_json(vision_profile());
  document[Json::json_pointer(pointer)] = parse_json(value, "value");
  return error_of<InvalidInput>([&] { profile_from_json(document, "p.json"); });
}

TEST(ProfileJson, RoundTripsExactly) {
  const auto path = std::filesystem::temp_directory_path() / "entrain-profile-test.json";
  const Profile profile = vision_profile();
  write_file(path, to_json(profile).dump(2));
  const Profile again = read_profile(path);
  std::filesystem::remove(path);
  EXPECT_EQ(to_json(again).dump(), to_json(profile).dump());
  ASSERT_EQ(again.layers.size(), 6U);
  EXPECT_EQ(again.layers[4].kind, LayerKind::kDecoder);
  EXPECT_EQ(again.layers[4].module, "llm");
  EXPECT_EQ(again.layers[4].backward_input.per_pair_ns,
            profile.layers[4].backward_input.per_pair_ns);
  EXPECT_EQ(again.layers[4].backward_weight.fit_error, profile.layers[4].backward_weight.fit_error);
  EXPECT_EQ(again.link.latency, std::chrono::nanoseconds(1500));
  EXPECT_EQ(again.optimizer_ns_per_parameter, 0.7);
  EXPECT_EQ(again.threads, 2);
}

TEST(ProfileJson, RefusesMistakesWithTheirPlace) {
  EXPECT_EQ(profile_message_after("/layers/4/kind", "\"decodr\""),
            "p.json: layers[4].kind: 'decodr' is not a layer kind, did you mean 'decoder'?");
  EXPECT_EQ(profile_message_after("/layers/1/forward/per_token_ns", "-1"),
            "p.json: layers[1].forward.per_token_ns: -1 given; a finite number of at least 0 is "
            "needed");
  EXPECT_EQ(profile_message_after("/layers/1/forward/per_tokens_ns", "1"),
            "p.json: layers[1].forward.per_tokens_ns: unknown key, did you mean 'per_token_ns'?");
  EXPECT_EQ(profile_message_after("/layers/0/backward_input", "null"),
            "p.json: layers[0].backward_input: null given; a number is needed (null means NaN "
            "or infinity)");
  EXPECT_EQ(profile_message_after("/source", "\"guessed\""),
            "p.json: source: 'guessed' given; allowed: measured, analytic");
  EXPECT_EQ(profile_message_after("/threads", "0"),
            "p.json: threads: 0 given; at least 1 is needed");
  EXPECT_EQ(profile_message_after("/link/latency_ns", "-5"),
            "p.json: link.latency_ns: -5 given; at least 0 is needed");
  EXPECT_EQ(profile_message_after("/version", "2"),
            "p.json: version: 2 given; this program reads 1");
}

TEST(ProfileJson, RefusesNullByItsPlace) {
  for (const char* key : {"layers",
                          "layers/0/forward",
                          "layers/4/forward/per_token_ns",
                          "layers/1/backward_weight/per_launch_ns",
                          "layers/2/activation_bytes_per_token",
                          "link/latency_ns",
                          "optimizer_ns_per_parameter",
                          "threads"}) {
    EXPECT_NE(
        profile_message_after(concat("/", key), "null").find("null given; a number is needed"),
        std::string::npos)
        << key;
  }
  EXPECT_EQ(profile_message_after("/layers/4/forward/per_token_ns", "null"),
            "p.json: layers[4].forward.per_token_ns: null given; a number is needed (null means "
            "NaN or infinity)");
}

// Entries of the same costs at other degrees behind those of degree 1.
Profile with_degrees(int tensor_parallel, int context_parallel) {
  Profile profile = vision_profile();
  for (std::size_t i = 0; i < 6; ++i) {
    LayerProfile entry = profile.layers[i];
    entry.tensor_parallel = tensor_parallel;
    entry.context_parallel = context_parallel;
    profile.layers.push_back(entry);
  }
  return profile;
}

TEST(ProfileJson, ReadsFilesThatKnowNoContextParallelism) {
  Json document = to_json(with_degrees(2, 4));
  EXPECT_EQ(document["layers"][6]["tensor_parallel"], 2);
  EXPECT_EQ(document["layers"][6]["context_parallel"], 4);
  EXPECT_EQ(profile_from_json(document, "p.json").layers[6].context_parallel, 4);
  document["layers"][0].erase("context_parallel");
  document["layers"][0].erase("tensor_parallel");
  const Profile profile = profile_from_json(document, "p.json");
  EXPECT_EQ(profile.layers[0].tensor_parallel, 1);
  EXPECT_EQ(profile.layers[0].context_parallel, 1);
}

TEST(FindLayer, FindsByModuleKindAndDegrees) {
  const Profile profile = with_degrees(2, 4);
  EXPECT_EQ(&find_layer(profile, "vision", LayerKind::kProjector), &profile.layers[2]);
  EXPECT_EQ(&find_layer(profile, "llm", LayerKind::kOutputHead), &profile.layers[5]);
  EXPECT_EQ(&find_layer(profile, "llm", LayerKind::kOutputHead, 2, 4), &profile.layers[11]);
  EXPECT_EQ(error_of<InvalidInput>([&] { find_layer(profile, "llm", LayerKind::kProjector); }),
            "the profile of 'cpu' has no entry for layer kind projector of module 'llm' at "
            "tensor_parallel 1, context_parallel 1; it has none at all");
  EXPECT_THROW(find_layer(profile, "audio", LayerKind::kProjector), InvalidInput);
}

TEST(FindLayer, SaysWhichDegreesThereAre) {
  const std::string message = error_of<InvalidInput>(
      [&] { find_layer(with_degrees(2, 4), "llm", LayerKind::kDecoder, 4, 2); });
  EXPECT_EQ(message.rfind("the profile of 'cpu' has no entry for layer kind decoder of module "
                          "'llm' at tensor_parallel 4, context_parallel 2; it has tensor × context "
                          "1 × 1, 2 × 4",
                          0),
            0U)
      << message;
  EXPECT_THROW(find_layer(with_degrees(2, 4), "llm", LayerKind::kDecoder, 2, 1), InvalidInput);
}

TEST(ValidateProfile, AcceptsAProfileOfTheModel) {
  EXPECT_NO_THROW(validate(vision_profile(), two_layer_model(), "p.json"));
  ModelSpec frozen = two_layer_model();
  frozen.llm.frozen = true;
  frozen.encoders[0].max_pixels = 100'352;
  EXPECT_NO_THROW(validate(vision_profile(), frozen, "p.json"))
      << "freezing and limits leave the layers as they are";
}

TEST(ValidateProfile, RefusesAProfileOfAnotherModel) {
  ModelSpec wider = two_layer_model();
  wider.llm.intermediate = 128;
  const std::string message =
      error_of<InvalidInput>([&] { validate(vision_profile(), wider, "p.json"); });
  EXPECT_EQ(
      message.rfind("p.json: model_digest: the profile was made for layers with other shapes", 0),
      0U)
      << message;
}

TEST(ValidateProfile, RefusesAMissingLayerKind) {
  Profile profile = vision_profile();
  profile.layers.erase(profile.layers.begin() + 1);
  EXPECT_EQ(error_of<InvalidInput>([&] { validate(profile, two_layer_model(), "p.json"); }),
            "p.json: layers: no entry for layer kind encoder_transformer of module 'vision' at "
            "tensor_parallel 1, context_parallel 1");
  profile.layers.clear();
  EXPECT_THROW(validate(profile, two_layer_model(), "p.json"), InvalidInput);
}

TEST(ValidateProfile, WantsEveryKindAtEveryDegreeOfAModule) {
  Profile profile = with_degrees(2, 1);
  EXPECT_NO_THROW(validate(profile, two_layer_model(), "p.json"));
  profile.layers.erase(profile.layers.begin() + 3, profile.layers.begin() + 6);
  EXPECT_NO_THROW(validate(profile, two_layer_model(), "p.json")) << "the LLM at 2 alone";
  profile.layers.pop_back();
  EXPECT_EQ(error_of<InvalidInput>([&] { validate(profile, two_layer_model(), "p.json"); }),
            "p.json: layers: no entry for layer kind output_head of module 'llm' at "
            "tensor_parallel 2, context_parallel 1");
}

TEST(ValidateProfile, RefusesAnEntryTwice) {
  EXPECT_EQ(
      error_of<InvalidInput>([&] { validate(with_degrees(1, 1), two_layer_model(), "p.json"); }),
      "p.json: layers: two entries for layer kind patch_embedding of module 'vision' at "
      "tensor_parallel 1, context_parallel 1");
}

TEST(ValidateProfile, RefusesImpossibleCosts) {
  for (const double value :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Profile profile = vision_profile();
    profile.layers[3].backward_weight.per_launch_ns = value;
    const std::string message =
        error_of<InvalidInput>([&] { validate(profile, two_layer_model(), "p.json"); });
    EXPECT_NE(message.find("token_embedding of 'llm': per_launch_ns"), std::string::npos)
        << message;
  }
  Profile profile = vision_profile();
  profile.layers[0].tensor_parallel = 0;
  EXPECT_THROW(validate(profile, two_layer_model(), "p.json"), InvalidInput);
  profile = vision_profile();
  profile.layers[0].context_parallel = 0;
  EXPECT_THROW(validate(profile, two_layer_model(), "p.json"), InvalidInput);
}

TEST(ProfileJson, KeepsWhatOnlyMeasurementsKnow) {
  Profile profile = vision_profile();
  profile.software = "torch 2.13.0";
  LayerProfile& layer = profile.layers[4];
  layer.range = {64, 4096, 1e6};
  layer.spread = 0.03;
  layer.recompute = {0.1, 2, 3, 0.4, 0.2};
  layer.split = {0, 4, 5, 0.1, 0.1};
  layer.parameter_bytes = 1024;
  layer.optimizer_bytes = 2048;
  const Profile again = profile_from_json(to_json(profile), "p.json");
  EXPECT_EQ(to_json(again).dump(), to_json(profile).dump());
  EXPECT_EQ(again.software, "torch 2.13.0");
  EXPECT_EQ(again.layers[4].range.most_pairs, 1e6);
  EXPECT_EQ(again.layers[4].recompute.fit_median, 0.2);
  EXPECT_EQ(again.layers[4].split.per_launch_ns, 5);
  EXPECT_FALSE(again.layers[3].range.known());
  EXPECT_FALSE(to_json(profile)["layers"][3].contains("range"));
  EXPECT_EQ(profile_message_after("/layers/4/range", R"({"most_tokens": -1})"),
            "p.json: layers[4].range.most_tokens: -1 given; a finite number of at least 0 is "
            "needed");
}

TEST(ValidateProfile, RefusesAForwardWithoutTime) {
  Profile profile = vision_profile();
  profile.layers[4].forward = {};
  EXPECT_EQ(error_of<InvalidInput>([&] { validate(profile, two_layer_model(), "p.json"); }),
            "p.json: layers: decoder of 'llm': the forward takes no time; a cost above 0 is "
            "needed");
}

}  // namespace
}  // namespace entrain
