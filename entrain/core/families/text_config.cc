// What the text models of Llama, Qwen and Mistral have in common.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"

namespace entrain {
namespace {

void read_rope(HfConfig rope, LlmSpec& llm) {
  llm.rope_theta = rope.optional("rope_theta", llm.rope_theta);
  const auto type = rope.optional("rope_type", rope.optional("type", std::string("default")));
  rope.harmless({"type"});
  for (const auto& [pairs, place] : rope.array("mrope_section")) {
    llm.mrope_sections.push_back(value_as<int>(*pairs, place));
  }
  rope.expect("mrope_interleaved", llm.mrope_interleaved);
  rope.expect("partial_rotary_factor", 1.0);
  if (type == "linear" || type == "llama3") {
    llm.rope_scaling.kind =
        type == "linear" ? RopeScaling::Kind::kLinear : RopeScaling::Kind::kLlama3;
    llm.rope_scaling.factor = rope.required<double>("factor");
  } else if (type != "default" && type != "mrope") {
    rope.fail("rope_type",
              fmt::format("'{}' given; allowed: default, mrope, linear, llama3", type));
  }
  if (type == "llama3") {
    llm.rope_scaling.low_freq_factor = rope.required<double>("low_freq_factor");
    llm.rope_scaling.high_freq_factor = rope.required<double>("high_freq_factor");
    llm.rope_scaling.original_max_position =
        rope.required<std::int64_t>("original_max_position_embeddings");
  }
  rope.finish();
}

// transformers 5 writes `rope_parameters`; earlier ones `rope_theta` beside `rope_scaling`.
void read_rotary(HfConfig& config, LlmSpec& llm, double default_theta) {
  llm.rope_theta = config.optional("rope_theta", default_theta);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (config.find(key) == nullptr) {
      continue;
    }
    HfConfig rope = config.object(key);
    if (llm.sliding_window > 0 && rope.find("full_attention") != nullptr) {
      read_rope(rope.object("full_attention"), llm);
      rope.harmless({"sliding_attention"});
      rope.finish();
      continue;
    }
    read_rope(std::move(rope), llm);
  }
}

}  // namespace

void read_text_config(HfConfig& config, LlmSpec& llm) {
  const auto whole = [&](const char* key, int fallback) {
    return fallback > 0 ? config.optional(key, fallback) : config.required<int>(key);
  };
  llm.num_layers = whole("num_hidden_layers", llm.num_layers);
  llm.hidden = whole("hidden_size", llm.hidden);
  llm.num_heads = whole("num_attention_heads", llm.num_heads);
  llm.num_kv_heads = config.optional("num_key_value_heads",
                                     llm.num_kv_heads > 0 ? llm.num_kv_heads : llm.num_heads);
  llm.head_dim = config.optional("head_dim", llm.head_dim);
  llm.intermediate = whole("intermediate_size", llm.intermediate);
  llm.vocab_size = whole("vocab_size", llm.vocab_size);
  llm.norm_epsilon = config.optional("rms_norm_eps", llm.norm_epsilon);
  llm.max_tokens = config.optional("max_position_embeddings", llm.max_tokens);
  llm.tie_word_embeddings = config.optional("tie_word_embeddings", llm.tie_word_embeddings);
  read_rotary(config, llm, llm.rope_theta);
  if (llm.head_dim == 0 && llm.num_heads > 0) {
    if (llm.hidden % llm.num_heads != 0) {
      config.refuse("hidden_size",
                    fmt::format("{} is not divisible by {} heads, and there is no head_dim",
                                llm.hidden,
                                llm.num_heads));
    }
    llm.head_dim = llm.hidden / llm.num_heads;
  }
  config.expect("hidden_act", "silu");
  config.expect("attention_dropout", 0.0);
  config.expect("pretraining_tp", 1);
  config.expect("is_decoder", false);
  config.expect("add_cross_attention", false);
  config.expect("quantization_config", nullptr);
  // Ids, hints for generation and for initial values.
  config.harmless({"use_cache",
                   "bos_token_id",
                   "eos_token_id",
                   "pad_token_id",
                   "initializer_range",
                   "_attn_implementation",
                   "tokenizer_class"});
}

void expect_full_attention(HfConfig& config, const LlmSpec& llm) {
  config.expect("use_sliding_window", false);
  config.harmless({"sliding_window", "max_window_layers"});
  const auto types = config.array("layer_types");
  for (const auto& [type, place] : types) {
    if (*type != "full_attention") {
      throw InvalidInput(
          fmt::format("{}: {} given; only full_attention can be represented", place, type->dump()));
    }
  }
  if (!types.empty() && std::ssize(types) != llm.num_layers) {
    config.refuse("layer_types",
                  fmt::format("{} given for {} layers", types.size(), llm.num_layers));
  }
}

}  // namespace entrain
