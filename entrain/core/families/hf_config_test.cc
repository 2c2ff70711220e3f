#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/hf_folders.h"

namespace entrain {
namespace {

using oracle::error_of;
using oracle::tiny_decoder_config;
using oracle::tiny_qwen_config;

// What to_dict() of transformers writes into every object of a config.
void add_boilerplate(Json& object) {
  object.update({{"architectures", nullptr},
                 {"return_dict", true},
                 {"output_hidden_states", false},
                 {"output_attentions", false},
                 {"dtype", nullptr},
                 {"chunk_size_feed_forward", 0},
                 {"is_encoder_decoder", false},
                 {"id2label", {{"0", "LABEL_0"}, {"1", "LABEL_1"}}},
                 {"label2id", {{"LABEL_0", 0}, {"LABEL_1", 1}}},
                 {"problem_type", nullptr},
                 {"_name_or_path", ""},
                 {"a_key_of_another_release", nullptr}});
}

TEST(HfConfig, HasKeysInEveryObjectThatChangeNothing) {
  const Json plain = tiny_qwen_config();
  Json config = plain;
  add_boilerplate(config);  // without architectures, the model_type says the family
  add_boilerplate(config["text_config"]);
  add_boilerplate(config["vision_config"]);
  EXPECT_EQ(to_json(hf_model_from_json(config, "c").model),
            to_json(hf_model_from_json(plain, "c").model));
}

std::string refused(const Json& config) {
  return error_of<InvalidInput>([&] { hf_model_from_json(config, "config.json"); });
}

void rename_key(Json& object, const std::string& from, const std::string& to) {
  object[to] = object[from];
  object.erase(from);
}

TEST(HfConfig, NamesAMisspeltKeyBeforeValuesThatRestOnItsDefault) {
  Json width = tiny_qwen_config();
  rename_key(width["text_config"], "hidden_size", "hidden_sze");
  EXPECT_EQ(refused(width),
            "config.json: text_config.hidden_sze: unknown key, did you mean 'hidden_size'?");
  Json layers = tiny_qwen_config();
  rename_key(layers["text_config"], "num_hidden_layers", "depth_of_all");
  layers["text_config"]["layer_types"] = {"full_attention"};
  EXPECT_NE(refused(layers).find("depth_of_all: unknown key"), std::string::npos);
  Json sections = tiny_qwen_config();
  rename_key(sections["text_config"], "rope_parameters", "rope_parametres");
  EXPECT_NE(refused(sections).find("did you mean 'rope_parameters'?"), std::string::npos);
  Json inner = tiny_qwen_config();
  inner["vision_config"]["out_hidden_size"] = 99;
  inner["vision_config"]["in_channels"] = 1;
  EXPECT_EQ(refused(inner),
            "config.json: vision_config.in_channels: 1 given; only 3 can be represented");
}

}  // namespace
}  // namespace entrain
