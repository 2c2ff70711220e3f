// LLMs alone: Llama 2 and 3, Qwen2 and 2.5, Qwen3, Mistral.
#include <algorithm>

#include "entrain/core/families/family.h"

namespace entrain {
namespace {

HfModel read_llama(HfConfig config) {
  HfModel result;
  LlmSpec& llm = result.model.llm;
  read_text_config(config, llm);
  llm.qkv_bias = llm.output_bias = config.optional("attention_bias", false);
  llm.mlp_bias = config.optional("mlp_bias", false);
  result.no_parameters = {".rotary_emb.inv_freq"};
  config.finish();
  return result;
}

HfModel read_qwen2(HfConfig config) {
  HfModel result;
  LlmSpec& llm = result.model.llm;
  read_text_config(config, llm);
  llm.qkv_bias = true;  // in the code of Qwen2, not in its config
  expect_full_attention(config, llm);
  config.finish();
  return result;
}

HfModel read_qwen3(HfConfig config) {
  HfModel result;
  LlmSpec& llm = result.model.llm;
  llm.head_dim = 128;  // the class's default
  read_text_config(config, llm);
  llm.qk_norm = true;
  llm.qkv_bias = llm.output_bias = config.optional("attention_bias", false);
  expect_full_attention(config, llm);
  config.finish();
  return result;
}

HfModel read_mistral(HfConfig config) {
  HfModel result;
  LlmSpec& llm = result.model.llm;
  read_text_config(config, llm);
  // Within its window attention is full.
  llm.max_tokens = std::min(llm.max_tokens, config.optional("sliding_window", llm.max_tokens));
  config.finish();
  return result;
}

}  // namespace

Family llama_family() {
  return {"Llama", {"LlamaForCausalLM"}, read_llama};
}
Family qwen2_family() {
  return {"Qwen2", {"Qwen2ForCausalLM"}, read_qwen2};
}
Family qwen3_family() {
  return {"Qwen3", {"Qwen3ForCausalLM"}, read_qwen3};
}
Family mistral_family() {
  return {"Mistral", {"MistralForCausalLM"}, read_mistral};
}

}  // namespace entrain
