// Encoders: patch or audio embedding, pre-norm transformer layers with attention within each
// segment or within windows of an image, and the projector that merges blocks of tokens and maps
// them to the LLM's width.
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/models/attention_windows.h"
#include "entrain/engine/models/audio_layers.h"
#include "entrain/engine/models/layers.h"
#include "entrain/engine/models/parameters.h"
#include "entrain/engine/models/recompute.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/models/tensor_group.h"
#include "entrain/engine/models/weight_gradients.h"

namespace entrain::engine {
namespace {

constexpr double kRotaryTheta = 10000.0;
constexpr std::size_t kAudioEmbeddingParameters = 4;
constexpr std::size_t kTransformerParameters = 7;
constexpr std::size_t kProjectorParameters = 5;

// Hugging Face's names for the encoders; other encoders use their own name.
std::string prefix_of(const EncoderSpec& encoder) {
  return encoder.name == "vision"  ? "visual"
         : encoder.name == "audio" ? "audio_tower"
                                   : encoder.name;
}

void add_embedding(ParameterBuilder& builder, const EncoderSpec& encoder) {
  const std::string prefix = prefix_of(encoder);
  if (encoder.modality == Modality::kVision) {
    const std::int64_t patch = encoder.patch_size;
    builder.add_matrix(prefix + ".patch_embed.proj.weight", encoder.hidden, 3 * patch * patch);
    return;
  }
  builder.add_convolution(prefix + ".conv1.weight", encoder.hidden, kMelBands, kMelKernel);
  builder.add_vector(prefix + ".conv1.bias", encoder.hidden, 0.0);
  builder.add_convolution(prefix + ".conv2.weight", encoder.hidden, encoder.hidden, kMelKernel);
  builder.add_vector(prefix + ".conv2.bias", encoder.hidden, 0.0);
}

void add_transformer(ParameterBuilder& builder,
                     const EncoderSpec& encoder,
                     std::int64_t head_dim,
                     int layer) {
  const std::string prefix = concat(prefix_of(encoder), ".blocks.", layer - 1, ".");
  const std::int64_t hidden = encoder.hidden;
  const std::int64_t width = encoder.num_heads * head_dim;
  const std::int64_t intermediate = encoder.intermediate;
  const auto add_matrix = [&](const char* name,
                              std::int64_t rows,
                              std::int64_t columns,
                              ParameterRole role,
                              const ParameterSplit& split) {
    builder.add_matrix(prefix + name, rows, columns, role, split);
  };
  constexpr ParameterRole kLinear = ParameterRole::kLinear;
  constexpr ParameterRole kResidual = ParameterRole::kResidualLinear;
  builder.add_vector(prefix + "norm1.weight", hidden, 1.0);
  add_matrix("attn.qkv.weight", 3 * width, hidden, kLinear, {0, 3});
  add_matrix("attn.proj.weight", hidden, width, kResidual, kByInputs);
  builder.add_vector(prefix + "norm2.weight", hidden, 1.0);
  add_matrix("mlp.gate_proj.weight", intermediate, hidden, kLinear, kByOutputs);
  add_matrix("mlp.up_proj.weight", intermediate, hidden, kLinear, kByOutputs);
  add_matrix("mlp.down_proj.weight", hidden, intermediate, kResidual, kByInputs);
}

void add_projector(ParameterBuilder& builder, const EncoderSpec& encoder, std::int64_t llm_hidden) {
  const std::string prefix = prefix_of(encoder) + ".merger.";
  const std::int64_t merged = merged_tokens(encoder) * encoder.hidden;
  const ParameterRole role = ParameterRole::kLinear;
  builder.add_vector(prefix + "ln_q.weight", encoder.hidden, 1.0);
  builder.add_matrix(prefix + "mlp.0.weight", merged, merged, role, kByOutputs);
  builder.add_vector(prefix + "mlp.0.bias", merged, 0.0, kByOutputs);
  builder.add_matrix(prefix + "mlp.2.weight", llm_hidden, merged, role, kByInputs);
  builder.add_vector(prefix + "mlp.2.bias", llm_hidden, 0.0);
}

// `weights` points at the layer's first parameter in the order of add_transformer(); without
// `windows` attention is full within each segment; audio's positions are in its embedding, its
// `table` is empty. Input and result are sharded rows of the `tokens`.
at::Tensor run_transformer(const EncoderSpec& encoder,
                           const TensorGroupPtr& group,
                           std::int64_t head_dim,
                           const NamedParameter* weights,
                           const at::Tensor& input,
                           std::int64_t tokens,
                           std::span<const std::int64_t> lengths,
                           const AttentionWindows* windows,
                           const RotaryTable& table) {
  const MatrixInput normed =
      gather_input(rms_norm(input, weights[0].tensor, kNormEpsilon), tokens, group);
  const at::Tensor qkv = split_linear(normed.rows, weights[1].tensor, {}, normed.again)
                             .view({tokens, 3, encoder.num_heads, head_dim});
  const std::vector<at::Tensor> parts = at::unbind(qkv, 1);
  const bool rotary = encoder.modality == Modality::kVision;
  const at::Tensor query = rotary ? rotate(parts[0], table) : parts[0];
  const at::Tensor key = rotary ? rotate(parts[1], table) : parts[1];
  const at::Tensor attended =
      windows == nullptr ? segment_attention(query, key, parts[2], lengths, /*causal=*/false)
                         : window_attention(query, key, parts[2], *windows);
  const at::Tensor middle =
      input + reduce_scatter(split_linear(attended, weights[2].tensor), group);
  const MatrixInput wide =
      gather_input(rms_norm(middle, weights[3].tensor, kNormEpsilon), tokens, group);
  return middle +
         reduce_scatter(
             gated_mlp(
                 wide.rows, weights[4].tensor, weights[5].tensor, weights[6].tensor, wide.again),
             group);
}

// Only one rank adds the last bias.
bool adds_bias(const TensorGroupPtr& group) {
  return group == nullptr || group->index == 0;
}

// `weights` in the order of add_projector(). The input is sharded rows of the `tokens`, the result
// replicated.
at::Tensor run_projector(const EncoderSpec& encoder,
                         const TensorGroupPtr& group,
                         const NamedParameter* weights,
                         const at::Tensor& input,
                         std::int64_t tokens,
                         std::span<const SegmentGrid> segments) {
  const std::int64_t block = merged_tokens(encoder);
  const bool vision = encoder.modality == Modality::kVision;
  const std::vector<SegmentGrid> grids(segments.begin(), segments.end());
  const auto merged_of = [block, vision, grids](const at::Tensor& whole) {
    const at::Tensor used = vision ? whole : merged_rows(whole, grids);
    return used.reshape({used.size(0) / block, block * used.size(1)});
  };
  const MatrixInput merged =
      gather_input(rms_norm(input, weights[0].tensor, kNormEpsilon), tokens, group, merged_of);
  const at::Tensor middle =
      at::gelu(split_linear(merged.rows, weights[1].tensor, weights[2].tensor, merged.again));
  const std::optional<at::Tensor> bias =
      adds_bias(group) ? std::optional(weights[4].tensor) : std::nullopt;
  return all_reduce(split_linear(middle, weights[3].tensor, bias), group);
}

// The segments of one forward and their derived inputs, each computed once.
class PackedSegments {
 public:
  PackedSegments(const EncoderSpec& encoder,
                 std::int64_t head_dim,
                 std::span<const SegmentGrid> segments)
      : encoder_(encoder), head_dim_(head_dim), grids_(segments.begin(), segments.end()) {
    lengths_.reserve(grids_.size());
    for (const SegmentGrid& grid : grids_) {
      lengths_.push_back(grid.tokens());
      tokens_ += grid.tokens();
      frames_ += grid.frames;
    }
  }

  [[nodiscard]] const std::vector<SegmentGrid>& grids() const { return grids_; }
  [[nodiscard]] const std::vector<std::int64_t>& lengths() const { return lengths_; }
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }

  // `mel`: the input is mel frames, else tokens.
  void check(const at::Tensor& input, bool mel) const {
    const std::int64_t rows = mel ? frames_ : tokens_;
    ENTRAIN_INVARIANT(input.dim() == 2 && input.size(0) == rows,
                      concat("stage of ",
                             encoder_.name,
                             ": input of shape ",
                             input.sizes(),
                             " for segments of ",
                             rows,
                             mel ? " mel frames" : " tokens"));
  }

  // Empty for audio, whose positions are in its embedding.
  const RotaryTable& table(const at::TensorOptions& options) {
    if (encoder_.modality == Modality::kVision && !table_.cosine.defined()) {
      table_ = rotary_table(grids_, encoder_.merge_size, head_dim_, kRotaryTheta, options);
    }
    return table_;
  }

  const AttentionWindows& windows(at::Device device) {
    if (windows_.lengths.empty()) {
      const int side = encoder_.window_size / encoder_.patch_size;
      windows_ = attention_windows(grids_, encoder_.merge_size, side, device);
    }
    return windows_;
  }

 private:
  const EncoderSpec& encoder_;
  std::int64_t head_dim_;
  std::vector<SegmentGrid> grids_;
  std::vector<std::int64_t> lengths_;
  std::int64_t tokens_ = 0;
  std::int64_t frames_ = 0;
  RotaryTable table_;
  AttentionWindows windows_;
};

}  // namespace

SegmentGrid segment_grid(const EncoderSpec& encoder,
                         const SegmentWork& work,
                         std::int64_t input_rows) {
  return encoder.modality == Modality::kVision
             ? SegmentGrid{work.rows, work.columns}
             : SegmentGrid{work.tokens, 1, input_rows, work.llm_tokens};
}

EncoderStage::EncoderStage(const EncoderSpec& encoder,
                           int llm_hidden,
                           LayerRange layers,
                           const StageOptions& options,
                           int recompute)
    : encoder_(encoder),
      group_(options.tensor_group),
      layers_(layers),
      recomputed_end_(layers.begin + recompute),
      last_layer_(encoder.num_layers + 1),
      head_dim_(encoder.hidden / encoder.num_heads) {
  check_layers(encoder.name, layers, last_layer_ + 1);
  encoder_.num_heads /= options.tensor_parallel;
  encoder_.intermediate /= options.tensor_parallel;
  ParameterBuilder builder(options, encoder.num_layers);
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    builder.set_trainable(layer == last_layer_ ? !encoder.projector_frozen : !encoder.frozen);
    if (layer == 0) {
      add_embedding(builder, encoder);
    } else if (layer == last_layer_) {
      add_projector(builder, encoder, llm_hidden);
    } else {
      add_transformer(builder, encoder, head_dim_, layer);
    }
  }
  parameters_ = builder.take();
}

at::Tensor EncoderStage::forward(const at::Tensor& input,
                                 std::span<const SegmentGrid> segments) const {
  const bool vision = encoder_.modality == Modality::kVision;
  PackedSegments packed(encoder_, head_dim_, segments);
  packed.check(input, /*mel=*/!vision && layers_.begin == 0);
  const std::int64_t tokens = packed.tokens();
  at::Tensor hidden = input;
  bool own = false;  // `hidden` is sharded; else replicated
  const NamedParameter* weights = parameters_.data();
  // A recomputed layer's captures must outlive this call.
  const auto run = [&](int layer, std::size_t num_weights, const LayerForward& forward_of) {
    hidden = layer < recomputed_end_ ? run_recomputed(hidden, {weights, num_weights}, forward_of)
                                     : forward_of(hidden);
    weights += num_weights;
  };
  const auto transformer_of = [&](int layer) -> LayerForward {
    const bool windowed = attends_in_windows(encoder_, layer);
    return [this,
            weights,
            tokens,
            lengths = packed.lengths(),
            table = packed.table(hidden.options().requires_grad(false)),
            windows = windowed ? std::optional(packed.windows(hidden.device()))
                               : std::nullopt](const at::Tensor& x) {
      return run_transformer(encoder_,
                             group_,
                             head_dim_,
                             weights,
                             x,
                             tokens,
                             lengths,
                             windows.has_value() ? &*windows : nullptr,
                             table);
    };
  };
  for (int layer = layers_.begin; layer < layers_.end; ++layer) {
    if (layer == 0 && vision) {
      hidden = split_linear(shard_rows(hidden, group_), weights->tensor);
      own = true;
      weights += 1;
    } else if (layer == 0) {
      run(layer, kAudioEmbeddingParameters, [weights, grids = packed.grids()](const at::Tensor& x) {
        return audio_embedding(
            {weights[0].tensor, weights[1].tensor, weights[2].tensor, weights[3].tensor}, x, grids);
      });
      hidden = shard_rows(hidden, group_);
      own = true;
    } else if (layer == last_layer_) {
      const std::size_t used = kProjectorParameters - (adds_bias(group_) ? 0 : 1);
      hidden = own ? hidden : scatter_rows(hidden, group_);
      run(layer, used, [this, weights, tokens, grids = packed.grids()](const at::Tensor& x) {
        return run_projector(encoder_, group_, weights, x, tokens, grids);
      });
      own = false;
    } else {
      hidden = own ? hidden : scatter_rows(hidden, group_);
      own = true;
      run(layer, kTransformerParameters, transformer_of(layer));
    }
  }
  return own ? gather_replicated(hidden, tokens, group_) : hidden;
}

bool EncoderStage::keeps_input() const {
  return group_ == nullptr;
}

}  // namespace entrain::engine
