// The part of a module on one lane: consecutive layers with their parameters.
//
// Read first: EncoderStage and LlmStage. Inputs are packed: rows of all segments (samples) are
// concatenated without padding; attention never crosses a boundary. All tensors are on the stage's
// device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/workload.h"

#include "entrain/engine/models/chunk_attention.h"
#include "entrain/engine/models/layers.h"
#include "entrain/engine/models/parameter_split.h"

namespace entrain::engine {

struct TensorGroup;  // tensor_group.h
using TensorGroupPtr = std::shared_ptr<const TensorGroup>;

// A leaf tensor with its Hugging Face name ("visual.blocks.0.attn.qkv.weight",
// "model.layers.0.mlp.up_proj.weight", "lm_head.weight", …). requires_grad follows the model's
// freezing.
struct NamedParameter {
  std::string name;
  at::Tensor tensor;
  ParameterSplit split = {};  // the shard of the parameter that this rank's stage holds
};

struct StageOptions {
  std::uint64_t seed = 0;
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
  // One rank's slice under tensor parallelism: heads, MLP, the projector's inner width and the
  // vocabulary are divided by it; norms, the projector's last bias, patch and audio embedding are
  // replicated. Requires  divides heads, key/value heads, MLP width, merged width and vocabulary.
  int tensor_parallel = 1;
  // The ranks with the other slices, as many as tensor_parallel. Functions of a stage then take and
  // return replicated rows, and gradients of replicated parameters are partial
  // (tensor_group.h). Without it a slice is only for measuring: attention, MLP,
  // projector and token embedding return partial sums, which are never added, logits are a slice,
  // token ids must be below the slice of the vocabulary, and weights have the slice's shape.
  TensorGroupPtr tensor_group = nullptr;
};

// Values depend only on (seed, name), so they are the same on every layout: normal with standard
// deviation `deviation`, from Entrain's own generator, equal on every machine up to libm.
at::Tensor initial_weight(const std::string& name,
                          std::vector<std::int64_t> shape,
                          double deviation,
                          const StageOptions& options);

// One segment; `input_rows` of layer 0's input, 0 on other stages.
SegmentGrid segment_grid(const EncoderSpec& encoder,
                         const SegmentWork& work,
                         std::int64_t input_rows);

class EncoderStage {
 public:
  // Layers [begin, end) of the encoder: 0 is the patch or audio embedding, the last the projector.
  // The first `recompute` of them keep only their input (recompute.h); the patch embedding always
  // does.
  EncoderStage(const EncoderSpec& encoder,
               int llm_hidden,
               LayerRange layers,
               const StageOptions& options,
               int recompute = 0);

  // Shapes   input: [T, patch_values()] (audio: [Σ frames, mel bands]) on the first stage, else
  //          [T, output_width()] of the layer before; T = sum of grid tokens.
  //          result: [T / merge_size² (audio: Σ features), output_width()] on the last stage, else
  //          [T, output_width()].
  at::Tensor forward(const at::Tensor& input, std::span<const SegmentGrid> segments) const;

  // Whether graphs of a stage other than the first keep their input unchanged. With several ranks
  // they keep a sharded copy: nothing reads the input's values after the forward.
  [[nodiscard]] bool keeps_input() const;

  [[nodiscard]] const std::vector<NamedParameter>& parameters() const { return parameters_; }

 private:
  EncoderSpec encoder_;  // heads and MLP width of the slice
  TensorGroupPtr group_;
  LayerRange layers_;
  int recomputed_end_ = 0;  // layers before it are recomputed
  int last_layer_ = 0;
  std::vector<NamedParameter> parameters_;
  std::vector<std::size_t> ends_;  // [layer of the stage] of its parameters
};

class LlmStage {
 public:
  // Layers [begin, end): 0 is the token embedding, the last the output head. The first `recompute`
  // of them keep only their input, the output head only its chosen rows; the token embedding always
  // does.
  LlmStage(const LlmSpec& llm, LayerRange layers, const StageOptions& options, int recompute = 0);

  // Token embeddings with image features at their positions; the first stage only.
  //
  // Shapes   ids: [T] int64; features: [F, output_width()] or undefined when F = 0; positions: [F]
  //          int64, rising: the rows of the result that features fill. result: likewise, T rows.
  at::Tensor embed(const at::Tensor& ids,
                   const at::Tensor& features,
                   const at::Tensor& positions) const;

  // This stage's decoder layers. Shapes  hidden: [T, output_width()] of the layer before; items'
  // rows sum to T.
  at::Tensor decode(const at::Tensor& hidden, std::span<const PackedItem> items) const;
  // For whole samples of text alone. Shapes  lengths: [samples], summing to T.
  at::Tensor decode(const at::Tensor& hidden, std::span<const std::int64_t> lengths) const;

  // Logits at chosen rows; the last stage only, and not under tensor parallelism.
  // Shapes  rows: [N] int64; result: [N, vocab].
  at::Tensor logits(const at::Tensor& hidden, const at::Tensor& rows) const;

  // Sum (not mean) of the cross-entropy of `targets` at `rows`; the last stage only. A float64
  // scalar: sums of hundreds of float32 terms would lose precision. Without rows it is 0,
  // depends only on `hidden` and costs nothing.
  at::Tensor loss_sum(const at::Tensor& hidden,
                      const at::Tensor& rows,
                      const at::Tensor& targets) const;

  [[nodiscard]] bool keeps_input() const;  // as EncoderStage's

  // A tied head's copy of the table is excluded if this stage has no embedding.
  [[nodiscard]] const std::vector<NamedParameter>& parameters() const { return parameters_; }

  // The embedding's table on the first stage, a tied head's on the last; undefined on other stages.
  [[nodiscard]] at::Tensor table() const;
  // Makes this last stage's tied head use the table of a first stage on the same lane.
  void use_table(const at::Tensor& table);

 private:
  LlmSpec llm_;  // heads, MLP width and vocabulary of the slice
  TensorGroupPtr group_;
  LayerRange layers_;
  int recomputed_end_ = 0;  // layers before it are recomputed
  int last_layer_ = 0;
  std::vector<NamedParameter> parameters_;
  std::vector<std::size_t> ends_;     // as EncoderStage's
  std::vector<NamedParameter> head_;  // the head's parameters; the last stage only
};

}  // namespace entrain::engine
