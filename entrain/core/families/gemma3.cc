// Gemma 3, known for costs alone: SigLIP on one canvas, the mean of blocks of tokens, RMSNorm, one
// matrix, and an LLM of sliding windows between layers of full attention, with norms before and
// after both sums. An LLM alone is the same without the encoder.
//
// Not in the description, since costs do not depend on it: the embedding's factor, gains that are
// 1 + weight, the scale of scores, other rotations in windows.
//
// Source  arXiv 2503.19786 and the model's code in transformers.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"

namespace entrain {
namespace {

// `layer_types`, or every n-th layer with full attention.
void read_windows(HfConfig& config, LlmSpec& llm) {
  const auto types = config.array("layer_types");
  const int usual = config.optional("_sliding_window_pattern", 6);
  const int pattern = config.optional("sliding_window_pattern", usual);
  if (pattern < 1 || (!types.empty() && std::ssize(types) != llm.num_layers)) {
    config.fail(
        "layer_types",
        fmt::format("{} given for {} layers, sliding_window_pattern is {}; one type a layer or a "
                    "pattern of 1 or more is needed",
                    types.size(),
                    llm.num_layers,
                    pattern));
  }
  for (int layer = 0; layer < llm.num_layers; ++layer) {
    bool full = (layer + 1) % pattern == 0;
    if (!types.empty()) {
      const auto& [type, place] = types[static_cast<std::size_t>(layer)];
      full = *type == "full_attention";
      if (!full && *type != "sliding_attention") {
        throw InvalidInput(fmt::format(
            "{}: {} given; allowed: full_attention, sliding_attention", place, type->dump()));
      }
    }
    if (full) {
      llm.full_attention_layers.push_back(layer);
    }
  }
}

LlmSpec gemma3_text(HfConfig config) {
  LlmSpec llm;
  llm.num_layers = 26;
  llm.hidden = 2304;
  llm.num_heads = 8;
  llm.num_kv_heads = 4;
  llm.head_dim = 256;
  llm.intermediate = 9216;
  llm.vocab_size = 262208;
  llm.max_tokens = 131072;
  llm.rope_theta = 1e6;
  llm.tie_word_embeddings = true;
  llm.qk_norm = llm.post_norm = true;
  llm.sliding_window = config.optional("sliding_window", 4096);
  read_text_config(config, llm);
  read_windows(config, llm);
  llm.activation = read_activation(config, "hidden_activation", Activation::kGeluTanh);
  llm.qkv_bias = llm.output_bias = config.optional("attention_bias", false);
  config.expect("use_bidirectional_attention", false);
  config.expect("attn_logit_softcapping", nullptr);
  config.expect("final_logit_softcapping", nullptr);
  config.harmless({"query_pre_attn_scalar", "rope_local_base_freq", "cache_implementation"});
  config.finish();
  return llm;
}

EncoderSpec gemma3_vision(HfConfig config) {
  EncoderSpec vision;
  vision.num_layers = 12;
  vision.hidden = 768;
  vision.num_heads = 12;
  vision.intermediate = 3072;
  vision.norm_epsilon = 1e-6;
  vision.activation = Activation::kGeluTanh;
  vision.patch_size = 16;
  vision.patch_bias = true;
  vision.resize_filter = ResizeFilter::kBilinear;
  config.expect("model_type", "siglip_vision_model");
  read_vit_config(config, vision, 224);
  config.finish();
  return vision;
}

HfModel read_gemma3(HfConfig config) {
  HfModel result;
  if (config.find("vision_config") == nullptr && config.find("text_config") == nullptr) {
    result.model.llm = gemma3_text(std::move(config));
    return result;
  }
  EncoderSpec vision = gemma3_vision(config.object("vision_config"));
  const int tokens = config.optional("mm_tokens_per_image", 256);
  const int side = static_cast<int>(std::lround(std::sqrt(std::max(tokens, 0))));
  if (side < 1 || side * side != tokens || vision.table_side % side != 0) {
    config.fail("mm_tokens_per_image",
                fmt::format("{} given; the square of a divisor of {}, the patches a side, "
                            "is needed",
                            tokens,
                            vision.table_side));
  }
  vision.merge_size = vision.table_side / side;
  vision.projector.norm_tokens = vision.projector.norm_merged = true;
  vision.projector.rms_merged = vision.projector.average = true;
  vision.projector.num_matrices = 1;
  vision.projector.bias = false;
  LlmSpec& llm = result.model.llm;
  llm = gemma3_text(config.object("text_config"));
  llm.full_image_attention = true;
  read_tied(config, llm);
  config.harmless({"boi_token_index",
                   "eoi_token_index",
                   "image_token_index",
                   "boi_token_id",
                   "eoi_token_id",
                   "image_token_id",
                   "pad_token_id",
                   "bos_token_id",
                   "eos_token_id",
                   "use_cache",
                   "initializer_range"});
  config.finish();
  result.model.encoders = {vision};
  return result;
}

}  // namespace

Family gemma3_family() {
  return {"Gemma 3",
          {"Gemma3ForConditionalGeneration", "Gemma3ForCausalLM"},
          {"gemma3", "gemma3_text"},
          read_gemma3};
}

}  // namespace entrain
