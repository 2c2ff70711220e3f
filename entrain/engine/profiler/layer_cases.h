// What the quick profile measures: one layer of every kind of a model, at several sizes, run
// through the very stages that train.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/spec/model.h"

#include "entrain/engine/models/stages.h"
#include "entrain/engine/profiler/fit.h"

namespace entrain::engine {

// One packed microbatch for one layer.
struct LayerCase {
  double attention_pairs = 0;  // as workload.h counts them
  double tokens = 0;           // of the module; output head: target tokens
  at::Tensor input;            // a float leaf: activations, or image features of the embedding
  std::function<at::Tensor()> forward;
};

struct LayerCases {
  std::string module;
  LayerKind kind = LayerKind::kDecoder;
  CurveTerms terms = CurveTerms::kLinear;
  std::vector<NamedParameter> parameters;  // of the layer
  std::vector<LayerCase> cases;            // rising sizes; the last is the largest
  double output_bytes_per_token = 0;       // of the stage's message
};

// Sizes are a sixteenth, a quarter and all of `max_tokens`, at least one merge block. Layers with
// attention get each size twice, as one segment and as several, so that Σn² and Σn are told apart.
//
// Requires  max_tokens >= 1.
// Throws    InvalidInput for encoders that cannot run.
std::vector<LayerCases> layer_cases(const ModelSpec& model, std::int64_t max_tokens);

// Splits `tokens` patches of an encoder into a grid as near to a square as merge blocks allow; the
// grid's own count may be a little less.
SegmentGrid near_square_grid(std::int64_t tokens, std::int64_t merge_size);

}  // namespace entrain::engine
