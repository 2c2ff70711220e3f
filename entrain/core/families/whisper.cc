// Whisper's encoder, which Qwen2-Audio has too; and Whisper, known for costs alone: the encoder on
// windows padded to 30 s, and a decoder of learned positions whose layers attend to its features.
//
// Source  arXiv 2212.04356 and the model's code in transformers.
#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"

namespace entrain {
namespace {

LlmSpec read_decoder(HfConfig& config, const EncoderSpec& audio) {
  LlmSpec llm;
  llm.num_layers = config.optional("decoder_layers", 4);
  llm.hidden = audio.hidden;
  llm.num_heads = llm.num_kv_heads = config.optional("decoder_attention_heads", 6);
  llm.intermediate = config.optional("decoder_ffn_dim", 1536);
  if (llm.num_heads < 1 || llm.hidden % llm.num_heads != 0) {
    config.fail("decoder_attention_heads", "a divisor of d_model is needed");
  }
  llm.head_dim = llm.hidden / llm.num_heads;
  llm.vocab_size = config.optional("vocab_size", 51865);
  llm.position_rows = config.optional("max_target_positions", 448);
  llm.max_tokens = llm.position_rows;
  llm.tie_word_embeddings = config.optional("tie_word_embeddings", true);
  llm.norm = audio.norm;
  llm.norm_epsilon = audio.norm_epsilon;
  llm.activation = audio.activation;
  llm.gated_mlp = llm.key_bias = false;
  llm.qkv_bias = llm.output_bias = llm.mlp_bias = true;
  llm.cross_attention = true;
  return llm;
}

HfModel read_whisper(HfConfig config) {
  HfModel result;
  EncoderSpec audio;
  audio.num_layers = 4;
  audio.hidden = 384;
  audio.num_heads = 6;
  audio.intermediate = 1536;
  read_whisper_encoder(config, audio);
  audio.pad_windows = true;
  audio.projector.num_matrices = 0;
  result.model.llm = read_decoder(config, audio);
  config.expect("decoder_layerdrop", 0.0);
  config.expect("apply_spec_augment", false);
  config.expect("is_encoder_decoder", true);
  // Hints for generation, and what another class and masks of frames have.
  config.harmless({"use_cache",
                   "bos_token_id",
                   "eos_token_id",
                   "pad_token_id",
                   "decoder_start_token_id",
                   "begin_suppress_tokens",
                   "suppress_tokens",
                   "forced_decoder_ids",
                   "max_length",
                   "median_filter_width",
                   "use_weighted_layer_sum",
                   "classifier_proj_size",
                   "mask_time_prob",
                   "mask_time_length",
                   "mask_time_min_masks",
                   "mask_feature_prob",
                   "mask_feature_length",
                   "mask_feature_min_masks"});
  config.finish();
  result.model.encoders = {audio};
  return result;
}

}  // namespace

void read_whisper_encoder(HfConfig& config, EncoderSpec& audio) {
  audio.name = "audio";
  audio.modality = Modality::kAudio;
  audio.num_layers = config.optional("encoder_layers", audio.num_layers);
  audio.hidden = config.optional("d_model", audio.hidden);
  audio.num_heads = config.optional("encoder_attention_heads", audio.num_heads);
  audio.intermediate = config.optional("encoder_ffn_dim", audio.intermediate);
  audio.mel_bands = config.optional("num_mel_bins", audio.mel_bands);
  audio.activation = read_activation(config, "activation_function", Activation::kGelu);
  // Two mel frames of 10 ms make a position.
  audio.window_seconds = config.optional("max_source_positions", 1500) / 50.0;
  // In the code, as is that keys have no bias.
  audio.norm = NormKind::kLayer;
  audio.norm_epsilon = 1e-5;
  audio.packed_qkv = audio.gated_mlp = audio.key_bias = false;
  audio.qkv_bias = audio.output_bias = audio.mlp_bias = true;
  audio.stored_positions = true;
  for (const char* rate :
       {"dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop"}) {
    config.expect(rate, 0.0);
  }
  config.expect("scale_embedding", false);
  config.expect("num_hidden_layers", audio.num_layers);
  config.harmless({"init_std"});
}

Family whisper_family() {
  return {"Whisper", {"WhisperForConditionalGeneration"}, {"whisper"}, read_whisper};
}

}  // namespace entrain
