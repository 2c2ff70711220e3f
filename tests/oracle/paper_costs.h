// A model, a plan and a batch whose costs can be added up on paper.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/cost/step_costs.h"

namespace entrain::oracle {

inline ModelSpec paper_model() {
  ModelSpec model;
  model.name = "small";
  EncoderSpec vision;
  vision.name = "vision";
  vision.num_layers = 1;
  vision.hidden = 8;
  vision.num_heads = 2;
  vision.intermediate = 16;
  model.encoders.push_back(vision);
  model.llm.num_layers = 1;
  model.llm.hidden = 16;
  model.llm.num_heads = 2;
  model.llm.num_kv_heads = 1;
  model.llm.head_dim = 8;
  model.llm.intermediate = 32;
  model.llm.vocab_size = 64;
  return model;
}

// 8 heads of 8 in both modules, 4 key and value heads in the LLM; four patches a feature.
inline ModelSpec eight_head_model(int num_layers) {
  ModelSpec model;
  model.name = "small";
  EncoderSpec vision;
  vision.name = "vision";
  vision.num_layers = num_layers;
  vision.hidden = 64;
  vision.num_heads = 8;
  vision.intermediate = 96;
  model.encoders.push_back(vision);
  model.llm.num_layers = num_layers;
  model.llm.hidden = 64;
  model.llm.num_heads = 8;
  model.llm.num_kv_heads = 4;
  model.llm.head_dim = 8;
  model.llm.intermediate = 96;
  model.llm.vocab_size = 200;
  return model;
}

inline LayerProfile paper_layer(const std::string& module,
                                LayerKind kind,
                                CostCurve forward,
                                CostCurve backward_input,
                                CostCurve backward_weight,
                                double activation_bytes) {
  LayerProfile result;
  result.module = module;
  result.kind = kind;
  result.forward = forward;
  result.backward_input = backward_input;
  result.backward_weight = backward_weight;
  result.activation_bytes_per_token = activation_bytes;
  return result;
}

// Curves as {per pair, per token, per launch}.
inline Profile paper_profile() {
  Profile profile;
  profile.device = "paper";
  profile.source = "analytic";
  profile.layers = {
      paper_layer("vision", LayerKind::kPatchEmbedding, {0, 1, 10}, {0, 2, 20}, {0, 4, 40}, 3),
      paper_layer(
          "vision", LayerKind::kEncoderTransformer, {0.5, 3, 11}, {1, 5, 21}, {0, 7, 41}, 10),
      paper_layer("vision", LayerKind::kProjector, {0, 9, 12}, {0, 6, 22}, {0, 8, 42}, 5),
      paper_layer("llm", LayerKind::kTokenEmbedding, {0, 2, 13}, {0, 1, 23}, {0, 3, 43}, 1),
      paper_layer("llm", LayerKind::kDecoder, {0.25, 10, 14}, {0.5, 12, 24}, {0, 11, 44}, 20),
      paper_layer("llm", LayerKind::kOutputHead, {0, 100, 15}, {0, 110, 25}, {0, 120, 45}, 1000),
  };
  return profile;
}

// vision: patches and transformer, projector; llm: embedding, decoder and head.
inline Plan paper_plan() {
  Plan plan;
  plan.modules = {{"vision", 1, 1, {{0, 2}, {2, 3}}}, {"llm", 1, 1, {{0, 1}, {1, 3}}}};
  plan.lanes = default_lanes(plan.modules);
  return plan;
}

// One sample of two images, one of text alone.
// Images that are equal to their neighbours, within a sample and beyond: runs of 2, 1, 1, 3 and 1.
inline std::vector<SampleWork> batch_of_runs() {
  std::vector<SampleSizes> batch(3);
  batch[0].images = {{56, 56}, {56, 56}, {84, 56}};
  batch[1].images = {{84, 56}};
  batch[2].images = {{56, 56}, {56, 56}, {56, 56}, {84, 84}};
  for (SampleSizes& sizes : batch) {
    sizes.prompt_tokens = 5;
    sizes.response_tokens = 2;
  }
  return batch_work(paper_model(), batch);
}

inline std::vector<SampleWork> paper_batch() {
  SampleWork images;
  images.segments = {{{.tokens = 4, .attention_pairs = 16, .llm_tokens = 1},
                      {.tokens = 8, .attention_pairs = 64, .llm_tokens = 2}}};
  images.llm_tokens = 10;
  images.llm_attention_pairs = 50;
  images.target_tokens = 3;
  SampleWork text;
  text.segments = {{}};
  text.llm_tokens = 6;
  text.llm_attention_pairs = 18;
  text.target_tokens = 2;
  return {images, text};
}

}  // namespace entrain::oracle
