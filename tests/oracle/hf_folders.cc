#include "tests/oracle/hf_folders.h"

#include <cstring>
#include <set>

#include <nlohmann/json.hpp>

#include "entrain/core/base/files.h"
#include "entrain/core/base/random.h"
#include "entrain/core/spec/parameters.h"

namespace entrain::oracle {

Json tiny_decoder_config(const std::string& architecture, const Json& more) {
  Json config = {{"architectures", {architecture}},
                 {"model_type", "tiny"},
                 {"hidden_size", 32},
                 {"intermediate_size", 40},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"hidden_act", "silu"},
                 {"max_position_embeddings", 512},
                 {"rms_norm_eps", 1e-6},
                 {"vocab_size", 264},
                 {"tie_word_embeddings", false},
                 {"attention_dropout", 0.0},
                 {"torch_dtype", "float32"}};
  if (more.is_object()) {
    config.update(more);
  }
  return config;
}

namespace {

// Qwen2 with M-RoPE.
Json tiny_qwen_text() {
  Json text = tiny_decoder_config("", {});
  text.erase("architectures");
  text["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 1e6}, {"mrope_section", {2, 1, 1}}};
  text["layer_types"] = {"full_attention", "full_attention"};
  text["use_sliding_window"] = false;
  return text;
}

}  // namespace

Json tiny_qwen2_vl_config() {
  return {{"architectures", {"Qwen2VLForConditionalGeneration"}},
          {"model_type", "qwen2_vl"},
          {"dtype", "float32"},
          {"image_token_id", 262},
          {"text_config", tiny_qwen_text()},
          {"tie_word_embeddings", false},
          {"vision_config",
           {{"model_type", "qwen2_vl_vision"},
            {"depth", 2},
            {"embed_dim", 16},
            {"mlp_ratio", 3},
            {"num_heads", 2},
            {"hidden_act", "quick_gelu"},
            {"hidden_size", 32},
            {"in_channels", 3},
            {"patch_size", 14},
            {"spatial_merge_size", 2},
            {"temporal_patch_size", 2},
            {"rope_parameters", {{"rope_type", "axial"}, {"rope_theta", 10000.0}}}}}};
}

Json tiny_qwen_config() {
  return {{"architectures", {"Qwen2_5_VLForConditionalGeneration"}},
          {"model_type", "qwen2_5_vl"},
          {"dtype", "float32"},
          {"image_token_id", 262},
          {"text_config", tiny_qwen_text()},
          {"tie_word_embeddings", false},
          {"vision_config",
           {{"depth", 2},
            {"hidden_size", 16},
            {"intermediate_size", 24},
            {"num_heads", 2},
            {"hidden_act", "silu"},
            {"in_channels", 3},
            {"patch_size", 14},
            {"spatial_merge_size", 2},
            {"temporal_patch_size", 2},
            {"window_size", 56},
            {"fullatt_block_indexes", {1}},
            {"out_hidden_size", 32},
            {"tokens_per_second", 2}}}};
}

Json tiny_qwen3_vl_config() {
  Json text = tiny_decoder_config("", {});
  text.erase("architectures");
  text["head_dim"] = 16;
  text["rope_parameters"] = {{"rope_type", "default"},
                             {"rope_theta", 5e6},
                             {"mrope_section", {4, 2, 2}},
                             {"mrope_interleaved", true}};
  return {{"architectures", {"Qwen3VLForConditionalGeneration"}},
          {"model_type", "qwen3_vl"},
          {"image_token_id", 262},
          {"text_config", text},
          {"tie_word_embeddings", false},
          {"vision_config",
           {{"depth", 4},
            {"hidden_size", 16},
            {"intermediate_size", 24},
            {"num_heads", 2},
            {"num_position_embeddings", 36},
            {"deepstack_visual_indexes", {0, 2}},
            {"out_hidden_size", 32}}}};
}

Json tiny_qwen_audio_config() {
  Json text = tiny_decoder_config("", {});
  text.erase("architectures");
  text["model_type"] = "qwen2";
  text["use_mrope"] = false;
  return {{"architectures", {"Qwen2AudioForConditionalGeneration"}},
          {"model_type", "qwen2_audio"},
          {"audio_token_index", 262},
          {"ignore_index", -100},
          {"text_config", text},
          {"audio_config",
           {{"model_type", "qwen2_audio_encoder"},
            {"num_mel_bins", 128},
            {"encoder_layers", 1},
            {"encoder_attention_heads", 2},
            {"encoder_ffn_dim", 24},
            {"encoder_layerdrop", 0.0},
            {"d_model", 16},
            {"dropout", 0.0},
            {"attention_dropout", 0.0},
            {"activation_function", "gelu"},
            {"activation_dropout", 0.0},
            {"scale_embedding", false},
            {"init_std", 0.02},
            {"max_source_positions", 20}}}};
}

std::string weight_file(const std::vector<FileTensor>& tensors, std::uint64_t seed) {
  Rng rng(seed);
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const FileTensor& tensor : tensors) {
    std::int64_t count = 1;
    for (const std::int64_t side : tensor.shape) {
      count *= side;
    }
    const std::size_t begin = data.size();
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(rng.normal() * 0.2);
      char bytes[sizeof(value)];
      std::memcpy(bytes, &value, sizeof(value));
      // A bfloat16 is the upper half of a float32.
      data.append(tensor.dtype == "BF16" ? bytes + 2 : bytes, tensor.dtype == "BF16" ? 2 : 4);
    }
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + text + data;
}

std::vector<FileTensor> tensors_of(const HfModel& model, const std::string& dtype) {
  std::vector<FileTensor> tensors;
  std::set<std::string> seen;
  for (int module = 0; module < model.model.num_modules(); ++module) {
    for (int layer = 0; layer < num_layers(model.model, module); ++layer) {
      for (const ParameterSpec& parameter : parameters_of(model.model, module, layer)) {
        const auto shape = model.shapes.find(parameter.name);
        if (seen.insert(parameter.name).second) {
          tensors.push_back({parameter.name,
                             shape == model.shapes.end() ? parameter.shape : shape->second,
                             dtype});
        }
      }
    }
  }
  return tensors;
}

void write_hf_folder(const std::filesystem::path& folder,
                     const Json& config,
                     const std::string& dtype) {
  const HfModel model = hf_model_from_json(config, "config.json");
  write_file(folder / "config.json", config.dump(2) + "\n");
  write_file(folder / "generation_config.json", "{}\n");
  write_file(folder / "merges.txt", "a b\n");
  write_file(folder / "model.safetensors", weight_file(tensors_of(model, dtype)));
}

}  // namespace entrain::oracle
