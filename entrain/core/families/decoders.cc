// LLMs alone: Llama 2 and 3, Qwen2 and 2.5, Qwen3, Mistral.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/families/family.h"

namespace entrain {
namespace {

// The defaults of the families' classes, for configs that leave keys out.
LlmSpec defaults(int hidden, int intermediate, int vocabulary, std::int64_t max_tokens) {
  LlmSpec llm;
  llm.num_layers = 32;
  llm.hidden = hidden;
  llm.num_heads = 32;
  llm.intermediate = intermediate;
  llm.vocab_size = vocabulary;
  llm.max_tokens = max_tokens;
  return llm;
}

LlmSpec llama_text(HfConfig config) {
  LlmSpec llm = defaults(4096, 11008, 32000, 2048);
  read_text_config(config, llm);
  llm.qkv_bias = llm.output_bias = config.optional("attention_bias", false);
  llm.mlp_bias = config.optional("mlp_bias", false);
  config.finish();
  return llm;
}

LlmSpec qwen2_text(HfConfig config) {
  LlmSpec llm = defaults(4096, 22016, 151936, 32768);
  read_text_config(config, llm);
  llm.qkv_bias = true;  // in the code of Qwen2, not in its config
  expect_full_attention(config, llm);
  config.finish();
  return llm;
}

LlmSpec qwen3_text(HfConfig config) {
  LlmSpec llm = defaults(4096, 22016, 151936, 32768);
  llm.head_dim = 128;
  read_text_config(config, llm);
  llm.qk_norm = true;
  llm.qkv_bias = llm.output_bias = config.optional("attention_bias", false);
  expect_full_attention(config, llm);
  config.finish();
  return llm;
}

LlmSpec mistral_text(HfConfig config) {
  LlmSpec llm = defaults(4096, 14336, 32000, 131072);
  llm.num_kv_heads = 8;
  read_text_config(config, llm);
  // Within its window attention is full.
  llm.max_tokens = std::min(llm.max_tokens, config.optional("sliding_window", llm.max_tokens));
  config.finish();
  return llm;
}

// A text model as a model of its own.
template <LlmSpec (*kRead)(HfConfig)>
HfModel alone(HfConfig config) {
  HfModel result;
  result.model.llm = kRead(std::move(config));
  result.no_parameters = {".rotary_emb.inv_freq"};
  return result;
}

}  // namespace

LlmSpec read_text_model(HfConfig config) {
  const auto type = config.required<std::string>("model_type");
  if (type == "llama") {
    return llama_text(std::move(config));
  }
  if (type == "qwen2") {
    return qwen2_text(std::move(config));
  }
  if (type == "qwen3") {
    return qwen3_text(std::move(config));
  }
  if (type == "mistral") {
    return mistral_text(std::move(config));
  }
  config.fail("model_type", fmt::format("'{}' given; allowed: llama, qwen2, qwen3, mistral", type));
}

void read_tied(HfConfig& config, LlmSpec& llm) {
  llm.tie_word_embeddings = config.optional("tie_word_embeddings", llm.tie_word_embeddings);
}

Family llama_family() {
  return {"Llama", {"LlamaForCausalLM"}, {"llama"}, alone<llama_text>};
}
Family qwen2_family() {
  return {"Qwen2", {"Qwen2ForCausalLM"}, {"qwen2"}, alone<qwen2_text>};
}
Family qwen3_family() {
  return {"Qwen3", {"Qwen3ForCausalLM"}, {"qwen3"}, alone<qwen3_text>};
}
Family mistral_family() {
  return {"Mistral", {"MistralForCausalLM"}, {"mistral"}, alone<mistral_text>};
}

}  // namespace entrain
