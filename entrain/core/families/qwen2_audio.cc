// Qwen2-Audio: Whisper's encoder on padded windows whose padding is masked, the mean of two tokens
// and a norm, one matrix, and Qwen2.
//
// Source  arXiv 2407.10759, arXiv 2212.04356 and the model's code in transformers.
#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"

namespace entrain {
namespace {

EncoderSpec read_audio(HfConfig config) {
  EncoderSpec audio;
  config.expect("model_type", "qwen2_audio_encoder");
  audio.num_layers = 32;
  audio.hidden = 1280;
  audio.num_heads = 20;
  audio.intermediate = 5120;
  audio.mel_bands = 128;
  read_whisper_encoder(config, audio);
  audio.masked_padding = true;
  config.harmless({"initializer_range"});
  config.finish();
  audio.projector.norm_tokens = false;
  audio.projector.norm_merged = audio.projector.average = true;
  audio.projector.num_matrices = 1;
  return audio;
}

HfModel::Spelling spelling(const HfRoots& roots) {
  const std::string tower = roots.root + "audio_tower.";
  HfModel::Spelling result;
  result.prefixes = {{"audio_tower.", tower},
                     {"audio_tower.positions.", tower + "embed_positions."},
                     {"audio_tower.blocks.", tower + "layers."},
                     {"audio_tower.merger.norm.", tower + "layer_norm."},
                     {"audio_tower.merger.mlp.2.", roots.root + "multi_modal_projector.linear."},
                     {"model.", roots.llm},
                     {"lm_head.", roots.head}};
  result.parts = {{".norm1.", ".self_attn_layer_norm."},
                  {".norm2.", ".final_layer_norm."},
                  {".attn.q_proj.", ".self_attn.q_proj."},
                  {".attn.k_proj.", ".self_attn.k_proj."},
                  {".attn.v_proj.", ".self_attn.v_proj."},
                  {".attn.proj.", ".self_attn.out_proj."},
                  {".mlp.up_proj.", ".fc1."},
                  {".mlp.down_proj.", ".fc2."}};
  return result;
}

HfModel read_qwen2_audio(HfConfig config) {
  HfModel result;
  result.model.encoders = {read_audio(config.object("audio_config"))};
  HfConfig text = config.object("text_config");
  text.expect("use_mrope", false);
  text.expect("model_type", "qwen2");
  text.expect("tie_word_embeddings", false);  // the class has no tied weights
  config.expect("tie_word_embeddings", false);
  result.model.llm = read_text_model(std::move(text));
  result.audio_text = {.token = "<|AUDIO|>",
                       .token_id = read_token_id(config, {"audio_token_index", "audio_token_id"}),
                       .mark = "<|audio_bos|><|AUDIO|><|audio_eos|>"};
  config.harmless({"ignore_index",
                   "vocab_size",
                   "pad_token_id",
                   "bos_token_id",
                   "eos_token_id",
                   "use_cache",
                   "initializer_range"});
  config.finish();
  result.spellings = {spelling(kHfRoots[0]), spelling(kHfRoots[1])};
  return result;
}

}  // namespace

Family qwen2_audio_family() {
  return {"Qwen2-Audio", {"Qwen2AudioForConditionalGeneration"}, {"qwen2_audio"}, read_qwen2_audio};
}

}  // namespace entrain
