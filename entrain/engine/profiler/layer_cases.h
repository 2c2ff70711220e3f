// The cases of a profile: one layer of every kind of a model, at several sizes, run through the
// stages used in training.
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
  double attention_pairs = 0;  // counted as in workload.h
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
  // Parameters of each layer, or of a rank's slice of it: layers of equal shape, each with its own
  // weights, as in a stage.
  std::vector<std::vector<NamedParameter>> layers;
  std::vector<LayerCase> cases;       // rising tokens, then segments
  double output_bytes_per_token = 0;  // of the stage's message
  bool keeps_input = true;            // the layer keeps its input; else only copies derived from it
  // If a lane has several ranks: the same cases through one layer as one rank runs it, with its
  // shard of the rows and its collectives (simulated, see single_rank.h): the memory of a rank;
  // times come from `cases`, which have no collectives. Allocates weights and inputs.
  std::function<LayerCases()> on_rank;
};

// Makes the weights of all layers trainable, or freezes them.
void set_trainable(const LayerCases& cases, bool trainable);
// Bytes of one layer's weights.
std::int64_t weight_bytes(const std::vector<NamedParameter>& layer);
// The tensor as a leaf without a gradient, like a received activation.
at::Tensor fresh_leaf(at::Tensor input, bool requires_grad = true);
// Values of normal size without a generator; they cost the same as random ones.
at::Tensor made_up(const std::vector<std::int64_t>& shape, const StageOptions& options);

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
  // Layers with attention run every size in this many equal segments (as long as a segment keeps 16
  // tokens), so that the fit can separate Σn² and Σn; other layers run one segment. 0: about 128
  // tokens each, two to eight segments. A size above the model's longest segment (max_pixels,
  // max_tokens) runs in as many times more segments as it needs: longer segments never occur in a
  // batch, and their quadratic part would dominate the fit.
  std::vector<std::int64_t> segments;
};

// Most layers in a stage of the profiler: more layers do not change the result.
inline constexpr int kMostLayers = 8;

// An encoder's microbatch has at least two merge blocks per segment, an LLM's four tokens.
//
// Makes as many layers as the module has of the kind, at most kMostLayers, and at most as many as
// fit into `memory_bytes` with their gradients (at least one; 0 = no limit).
// Throws    InvalidInput for encoders that cannot run.
// Cost      the layers' parameters and all inputs.
LayerCases layer_cases(const ModelSpec& model,
                       const LayerChoice& choice,
                       const CaseGrid& grid,
                       const StageOptions& options,
                       std::int64_t memory_bytes = 0);

// Splits `tokens` patches of an encoder into a grid as close to a square as merge blocks allow; the
// grid may have slightly fewer patches.
SegmentGrid near_square_grid(std::int64_t tokens, std::int64_t merge_size);

}  // namespace entrain::engine
