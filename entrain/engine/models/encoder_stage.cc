// Encoders: patch or audio embedding, pre-norm transformer layers with attention within each
// segment or within windows of an image, and the projector that merges blocks of tokens and maps
// them to the LLM's width.
#include <algorithm>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/spec/parameters.h"

#include "entrain/engine/models/attention_windows.h"
#include "entrain/engine/models/audio_layers.h"
#include "entrain/engine/models/block.h"
#include "entrain/engine/models/layers.h"
#include "entrain/engine/models/parameters.h"
#include "entrain/engine/models/recompute.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/models/tensor_group.h"
#include "entrain/engine/models/vision_layers.h"

namespace entrain::engine {
namespace {

// The segments of one forward and their derived inputs, each computed once.
class PackedSegments {
 public:
  PackedSegments(const EncoderSpec& encoder, std::span<const SegmentGrid> segments)
      : encoder_(encoder), segments_(segments.begin(), segments.end()), grids_(tiles_of(segments)) {
    lengths_.reserve(grids_.size());
    for (const SegmentGrid& grid : grids_) {
      lengths_.push_back(grid.tokens());
      tokens_ += grid.tokens();
      frames_ += grid.frames;
      patches_ += grid.rows * grid.columns;
    }
  }

  [[nodiscard]] const std::vector<SegmentGrid>& segments() const { return segments_; }
  // Their tiles, within which attention stays.
  [[nodiscard]] const std::vector<SegmentGrid>& grids() const { return grids_; }
  [[nodiscard]] const std::vector<std::int64_t>& lengths() const { return lengths_; }
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }

  // Of the encoder's first layer the input is mel frames or patches, else tokens.
  void check(const at::Tensor& input, bool first) const {
    const bool mel = first && encoder_.modality == Modality::kAudio;
    const std::int64_t rows = mel ? frames_ : first ? patches_ : tokens_;
    ENTRAIN_INVARIANT(input.dim() == 2 && input.size(0) == rows,
                      concat("stage of ",
                             encoder_.name,
                             ": input of shape ",
                             input.sizes(),
                             " for segments of ",
                             rows,
                             mel ? " mel frames" : " tokens"));
  }

  // Empty where positions are in the embedding.
  const RotaryTable& table(const at::TensorOptions& options) {
    if (has_rotations(encoder_) && !table_.cosine.defined()) {
      table_ = rotary_table(grids_,
                            encoder_.merge_size,
                            encoder_.width_of_head(),
                            encoder_.rope_theta,
                            encoder_.rotary,
                            options);
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
  std::vector<SegmentGrid> segments_;
  std::vector<SegmentGrid> grids_;
  std::vector<std::int64_t> lengths_;
  std::int64_t tokens_ = 0;
  std::int64_t frames_ = 0;
  std::int64_t patches_ = 0;
  RotaryTable table_;
  AttentionWindows windows_;
};

}  // namespace

SegmentGrid segment_grid(const EncoderSpec& encoder,
                         const SegmentWork& work,
                         std::int64_t input_rows) {
  return encoder.modality == Modality::kVision
             ? SegmentGrid{.rows = work.rows,
                           .columns = work.columns,
                           .extra = extra_tokens(encoder),
                           .canvas = work.canvas}
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
      last_layer_(encoder.num_layers + 1) {
  check_layers(encoder.name, layers, last_layer_ + 1);
  slice_block(encoder_, options.tensor_parallel);
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    for (const ParameterSpec& parameter : parameters_of(encoder, llm_hidden, layer)) {
      parameters_.push_back(initial_parameter(parameter, options, encoder.num_layers));
    }
    ends_.push_back(parameters_.size());
  }
}

at::Tensor EncoderStage::forward(const at::Tensor& input,
                                 std::span<const SegmentGrid> segments) const {
  const bool vision = encoder_.modality == Modality::kVision;
  PackedSegments packed(encoder_, segments);
  packed.check(input, layers_.begin == 0);
  const std::int64_t tokens = packed.tokens();
  at::Tensor hidden = input;
  std::vector<at::Tensor> kept;  // DeepStack: earlier layers' results, sharded
  bool own = false;              // `hidden` is sharded; else replicated
  const auto weights_of = [&](int layer) -> std::span<const NamedParameter> {
    const auto index = static_cast<std::size_t>(layer - layers_.begin);
    const std::size_t begin = index == 0 ? 0 : ends_[index - 1];
    return {parameters_.data() + begin, ends_[index] - begin};
  };
  // A recomputed layer's captures must outlive this call.
  const auto run = [&](int layer, const LayerForward& forward_of) {
    hidden = layer < recomputed_end_ ? run_recomputed(hidden, weights_of(layer), forward_of)
                                     : forward_of(hidden);
  };
  const auto transformer_of = [&](int layer) -> LayerForward {
    const bool windowed = attends_in_windows(encoder_, layer);
    return [this,
            weights = weights_of(layer),
            tokens,
            lengths = packed.lengths(),
            table = packed.table(hidden.options().requires_grad(false)),
            windows = windowed ? std::optional(packed.windows(hidden.device()))
                               : std::nullopt](const at::Tensor& x) {
      const Attend attend =
          [&](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
            return windows.has_value()
                       ? window_attention(query, key, value, *windows)
                       : segment_attention(query, key, value, lengths, /*causal=*/false);
          };
      return run_block(
          encoder_, group_, weights, x, tokens, table.cosine.defined() ? &table : nullptr, attend);
    };
  };
  const auto with_kept = [&] {
    kept.insert(kept.begin(), hidden);
    return kept.size() == 1 ? hidden : at::cat(kept, 1);
  };
  if (layers_.begin > 0) {
    kept = side_by_side(scatter_rows(hidden, group_), encoder_.hidden);
    hidden = kept.front();
    kept.erase(kept.begin());
    own = true;
  }
  for (int layer = layers_.begin; layer < layers_.end; ++layer) {
    const std::span<const NamedParameter> weights = weights_of(layer);
    if (layer == 0 && vision) {
      hidden = patch_embedding(encoder_, group_, weights, hidden, packed.grids());
      own = true;
    } else if (layer == 0) {
      const bool stored = encoder_.stored_positions;
      run(layer, [weights, stored, grids = packed.grids()](const at::Tensor& x) {
        return audio_embedding({weights[0].tensor,
                                weights[1].tensor,
                                weights[2].tensor,
                                weights[3].tensor,
                                stored ? weights[4].tensor : at::Tensor()},
                               x,
                               grids);
      });
      hidden = shard_rows(hidden, group_);
      own = true;
    } else if (layer == last_layer_) {
      hidden = with_kept();
      run(layer, [this, weights, tokens, all = packed.segments()](const at::Tensor& x) {
        return projector(encoder_, group_, weights, x, tokens, all);
      });
      own = false;
    } else {
      run(layer, transformer_of(layer));
      const std::vector<int>& deep = encoder_.deepstack_layers;
      if (std::binary_search(deep.begin(), deep.end(), layer - 1)) {
        kept.push_back(hidden);
      }
    }
  }
  return own ? gather_replicated(with_kept(), tokens, group_) : hidden;
}

bool EncoderStage::keeps_input() const {
  return group_ == nullptr && (encoder_.deepstack_layers.empty() ||
                               layers_.begin - 1 <= encoder_.deepstack_layers.front());
}

}  // namespace entrain::engine
