// What a profile measures: one layer of every kind of a model, at several sizes, run through the
// very stages that train.
//
// Read first: layer_cases().
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
  std::int64_t num_segments = 1;
  at::Tensor input;  // a float leaf: activations, or image features of the embedding
  std::function<at::Tensor(int layer)> forward;  // through one of LayerCases::layers
};

struct LayerCases {
  std::string module;
  LayerKind kind = LayerKind::kDecoder;
  int tensor_parallel = 1;
  int num_alike = 1;  // layers of this kind in the module
  CurveTerms terms = CurveTerms::kLinear;
  // Parameters of each layer, or of a rank's slice of it: layers of one shape with weights of their
  // own, as a stage has them.
  std::vector<std::vector<NamedParameter>> layers;
  std::vector<LayerCase> cases;       // rising tokens, then segments
  double output_bytes_per_token = 0;  // of the stage's message
  bool keeps_input = true;            // whole; else the layer keeps what it copies of it
  // Where a lane has several ranks: the same cases through one layer as one of them runs it, which
  // has its run of the rows and exchanges with the others (made up, see lone_rank.h). It is what a
  // rank keeps; times are those of `cases`, which exchange nothing. Makes weights and inputs.
  std::function<LayerCases()> on_rank;
};

// One layer of every kind, at one degree of tensor parallelism.
struct LayerChoice {
  int module = 0;
  int layer = 0;
  int tensor_parallel = 1;
};

// One layer of every kind of every module, each at those of `degrees` that
// divide the module's heads, key and value heads, MLP, projector and vocabulary.
// Requires  every degree >= 1.
std::vector<LayerChoice> layer_choices(const ModelSpec& model, const std::vector<int>& degrees);

struct CaseGrid {
  std::vector<std::int64_t> tokens;  // rising, >= 1 each
  // Layers with attention run every size in so many equal segments (as far as a segment keeps 16
  // tokens), so that Σn² and Σn are told apart; the others in one. 0: about 128 tokens each, two to
  // eight of them. A size that no segment of the model reaches (max_pixels, max_tokens) is run in
  // so many times the segments that it needs: longer ones come in no batch, and their quadratic
  // part would outweigh in the fit what batches are made of.
  std::vector<std::int64_t> segments;
};

// Layers that a stage of the profiler holds at most: more of them change nothing.
inline constexpr int kMostLayers = 8;

// An encoder's microbatch holds two merge blocks a segment at least; an LLM's four tokens.
//
// As many layers are made as the module has of the kind, kMostLayers at most, and no more than
// `memory_bytes` hold with their gradients (one always; 0 = any).
// Throws    InvalidInput for encoders that cannot run.
// Cost      the layers' parameters and all inputs.
LayerCases layer_cases(const ModelSpec& model,
                       const LayerChoice& choice,
                       const CaseGrid& grid,
                       const StageOptions& options,
                       std::int64_t memory_bytes = 0);

// Splits `tokens` patches of an encoder into a grid as near to a square as merge blocks allow; the
// grid's own count may be a little less.
SegmentGrid near_square_grid(std::int64_t tokens, std::int64_t merge_size);

}  // namespace entrain::engine
