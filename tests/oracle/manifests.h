// Real manifests, and a model of a size that they are trained with.
#pragma once

#include <filesystem>

#include "entrain/core/spec/model.h"

#include "tests/oracle/shards.h"

namespace entrain::oracle {

inline std::filesystem::path manifests() {
  return shared_folder() / "data" / "manifests";
}

// Qwen2.5-VL's vision encoder or a Whisper-like one before a Llama-3 1B.
inline ModelSpec manifest_model(Modality modality) {
  ModelSpec model;
  model.name = "manifest";
  EncoderSpec& encoder = model.encoders.emplace_back();
  encoder.name = name_of(modality);
  encoder.modality = modality;
  encoder.num_layers = 32;
  encoder.hidden = 1280;
  encoder.num_heads = 16;
  encoder.intermediate = 3420;
  encoder.max_pixels = 12'845'056;
  model.llm.num_layers = 16;
  model.llm.hidden = 2048;
  model.llm.num_heads = 32;
  model.llm.num_kv_heads = 8;
  model.llm.head_dim = 64;
  model.llm.intermediate = 8192;
  model.llm.vocab_size = 128256;
  model.llm.max_tokens = 131072;
  return model;
}

}  // namespace entrain::oracle
