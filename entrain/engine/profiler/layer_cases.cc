#include "entrain/engine/profiler/layer_cases.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "entrain/core/spec/workload.h"

#include "entrain/engine/profiler/single_rank.h"

namespace entrain::engine {
namespace {

constexpr std::int64_t kLeastSegment = 16;  // tokens

// Numbers of segments to run `tokens` in, none of more than `longest`.
std::vector<std::int64_t> segmentations(const CaseGrid& grid,
                                        bool attention,
                                        std::int64_t tokens,
                                        std::int64_t longest) {
  const std::int64_t fewest = (tokens + longest - 1) / longest;
  std::set<std::int64_t> counts;
  for (const std::int64_t wanted : grid.segments) {
    const std::int64_t count =
        wanted == 0 ? std::clamp(tokens / 128, 2 * fewest, 8 * fewest) : wanted * fewest;
    if (attention && (wanted == 0 || count == fewest || tokens / count >= kLeastSegment)) {
      counts.insert(count);
    }
  }
  counts.insert(counts.empty() ? 1 : *counts.begin());
  return {counts.begin(), counts.end()};
}

std::vector<std::int64_t> sizes_of(const CaseGrid& grid, std::int64_t least) {
  std::set<std::int64_t> sizes;
  for (const std::int64_t tokens : grid.tokens) {
    sizes.insert(std::max(least, tokens));
  }
  return {sizes.begin(), sizes.end()};
}

using EncoderLayers = std::vector<std::shared_ptr<const EncoderStage>>;
using LlmLayers = std::vector<std::shared_ptr<const LlmStage>>;

// As many layers with separate weights as fit; see layer_cases().
template <typename Stage>
std::vector<std::shared_ptr<const Stage>> make_layers(
    int num_alike,
    std::int64_t memory_bytes,
    const std::function<std::shared_ptr<const Stage>()>& make) {
  std::vector<std::shared_ptr<const Stage>> layers = {make()};
  const std::int64_t bytes = 2 * weight_bytes(layers[0]->parameters());
  const std::int64_t fitting =
      memory_bytes == 0 ? kMostLayers : memory_bytes / std::max<std::int64_t>(1, bytes);
  while (std::ssize(layers) < std::min<std::int64_t>({num_alike, kMostLayers, fitting})) {
    layers.push_back(make());
  }
  return layers;
}

template <typename Stage>
std::vector<std::vector<NamedParameter>> parameters_of(
    const std::vector<std::shared_ptr<const Stage>>& layers) {
  std::vector<std::vector<NamedParameter>> result;
  for (const auto& layer : layers) {
    result.push_back(layer->parameters());
  }
  return result;
}

int count_alike(const ModelSpec& model, const LayerChoice& choice) {
  const LayerKind kind = layer_kind(model, choice.module, choice.layer);
  int count = 0;
  for (int layer = 0; layer < num_layers(model, choice.module); ++layer) {
    count += layer_kind(model, choice.module, layer) == kind ? 1 : 0;
  }
  return count;
}

// A nearly square image, or a window of audio with a whole number of features. An embedding that
// knows one size gets that.
SegmentGrid made_up_segment(const EncoderSpec& encoder, LayerKind kind, std::int64_t tokens) {
  if (kind == LayerKind::kPatchEmbedding && has_one_size(encoder)) {
    return {
        .rows = encoder.table_side, .columns = encoder.table_side, .extra = extra_tokens(encoder)};
  }
  if (encoder.modality == Modality::kVision) {
    return near_square_grid(tokens, encoder.merge_size);
  }
  const std::int64_t features = std::max<std::int64_t>(1, tokens / 2);
  return {2 * features, 1, 4 * features, features};
}

// Tokens of the longest segment that the encoder takes.
std::int64_t longest_segment(const EncoderSpec& encoder) {
  if (encoder.modality == Modality::kAudio) {
    return window_tokens(encoder);
  }
  if (has_one_size(encoder)) {
    return std::int64_t{encoder.table_side} * encoder.table_side + extra_tokens(encoder);
  }
  const VideoSpec& video = encoder.video;
  const std::int64_t of_frame = video.shared_pixels ? video.max_pixels / 2 : video.max_pixels;
  return std::max(encoder.max_pixels, of_frame) /
         (std::int64_t{encoder.patch_size} * encoder.patch_size);
}

LayerCase encoder_case(const EncoderLayers& layers,
                       const EncoderSpec& encoder,
                       std::int64_t width,
                       std::int64_t tokens,
                       std::int64_t num_segments,
                       LayerKind kind,
                       const StageOptions& options) {
  const bool windowed = kind == LayerKind::kWindowedTransformer;
  const bool frames = kind == LayerKind::kAudioEmbedding;
  const SegmentGrid grid = made_up_segment(encoder, kind, tokens / num_segments);
  const std::vector<SegmentGrid> grids(static_cast<std::size_t>(num_segments), grid);
  LayerCase result;
  const auto segment_tokens = static_cast<double>(grid.tokens());
  result.num_segments = num_segments;
  result.tokens = segment_tokens * static_cast<double>(num_segments);
  result.attention_pairs = result.tokens * segment_tokens;
  if (windowed) {
    const std::int64_t window = encoder.window_size / encoder.patch_size;
    result.attention_pairs =
        static_cast<double>(num_segments * window_pairs(grid.rows, grid.columns, window));
  }
  const std::int64_t rows = frames ? grid.frames : grid.rows * grid.columns;
  result.input = made_up({rows * num_segments, width}, options);
  result.forward = [layers, grids, input = result.input](int layer) {
    return layers[static_cast<std::size_t>(layer)]->forward(input, grids);
  };
  return result;
}

LayerCases encoder_cases(const ModelSpec& model,
                         const LayerChoice& choice,
                         const CaseGrid& grid,
                         const StageOptions& options,
                         std::int64_t memory_bytes) {
  const EncoderSpec& encoder = model.encoders[static_cast<std::size_t>(choice.module)];
  const auto layers = make_layers<EncoderStage>(count_alike(model, choice), memory_bytes, [&] {
    return std::make_shared<const EncoderStage>(
        encoder, model.llm.hidden, LayerRange{choice.layer, choice.layer + 1}, options);
  });
  LayerCases result;
  result.module = encoder.name;
  result.kind = layer_kind(model, choice.module, choice.layer);
  result.layers = parameters_of(layers);
  const std::int64_t block = merged_tokens(encoder);
  const bool attention = has_attention(result.kind);
  // The table has rows for a full window alone.
  const bool cut = attention || encoder.stored_positions;
  result.terms = attention ? CurveTerms::kAttention : CurveTerms::kLinear;
  const std::int64_t width = result.kind == LayerKind::kPatchEmbedding ? patch_values(encoder)
                             : result.kind == LayerKind::kAudioEmbedding
                                 ? encoder.mel_bands
                                 : output_width(model, choice.module, choice.layer - 1);
  const std::int64_t merged = result.kind == LayerKind::kProjector ? block : 1;
  result.output_bytes_per_token =
      static_cast<double>(at::elementSize(options.dtype)) *
      (static_cast<double>(output_width(model, choice.module, choice.layer)) /
       static_cast<double>(merged));
  const std::int64_t longest = std::max(2 * block, longest_segment(encoder));
  for (const std::int64_t tokens : sizes_of(grid, 2 * block)) {
    const std::int64_t one = made_up_segment(encoder, result.kind, tokens).tokens();
    for (const std::int64_t fewest : segmentations(grid, cut, tokens, longest)) {
      const std::int64_t segments = std::max(fewest, tokens / one);
      result.cases.push_back(
          encoder_case(layers, encoder, width, tokens, segments, result.kind, options));
    }
  }
  return result;
}

LayerCase decoder_case(const LlmLayers& layers,
                       std::int64_t width,
                       std::int64_t tokens,
                       std::int64_t num_samples,
                       const StageOptions& options) {
  const std::int64_t length = tokens / num_samples;
  const std::vector<std::int64_t> lengths(static_cast<std::size_t>(num_samples), length);
  LayerCase result;
  result.num_segments = num_samples;
  result.tokens = static_cast<double>(length * num_samples);
  result.attention_pairs = static_cast<double>(num_samples * (length * length / 2));
  result.input = made_up({length * num_samples, width}, options);
  result.forward = [layers, lengths, input = result.input](int layer) {
    return layers[static_cast<std::size_t>(layer)]->decode(input, lengths);
  };
  return result;
}

// Half of the positions hold image features.
LayerCase embedding_case(const LlmLayers& layers,
                         const LlmSpec& llm,
                         std::int64_t tokens,
                         const StageOptions& options) {
  LayerCase result;
  const std::int64_t vocabulary = llm.vocab_size / options.tensor_parallel;
  const at::Tensor ids =
      at::arange(tokens, at::kLong).mul_(7).remainder_(vocabulary).to(options.device);
  const std::int64_t num_features = std::max<std::int64_t>(1, tokens / 2);
  const at::Tensor positions = at::arange(num_features, at::kLong).to(options.device);
  result.tokens = static_cast<double>(tokens);
  result.input = made_up({num_features, (1 + llm.deepstack) * llm.hidden}, options);
  result.forward = [layers, ids, positions, input = result.input](int layer) {
    return layers[static_cast<std::size_t>(layer)]->embed(ids, input, positions);
  };
  return result;
}

LayerCase head_case(const LlmLayers& layers,
                    const LlmSpec& llm,
                    std::int64_t tokens,
                    const StageOptions& options) {
  LayerCase result;
  const std::int64_t vocabulary = llm.vocab_size / options.tensor_parallel;
  const at::Tensor rows = at::arange(tokens, at::kLong).to(options.device);
  const at::Tensor targets = rows.mul(7).remainder_(vocabulary);
  result.tokens = static_cast<double>(tokens);
  result.input = made_up({tokens, llm.hidden}, options);
  result.forward = [layers, rows, targets, input = result.input](int layer) {
    return layers[static_cast<std::size_t>(layer)]->loss_sum(input, rows, targets);
  };
  return result;
}

LayerCases llm_cases(const ModelSpec& model,
                     const LayerChoice& choice,
                     const CaseGrid& grid,
                     const StageOptions& options,
                     std::int64_t memory_bytes) {
  LlmSpec untied = model.llm;  // a separate layer has its own matrix
  untied.tie_word_embeddings = false;
  const auto layers = make_layers<LlmStage>(count_alike(model, choice), memory_bytes, [&] {
    return std::make_shared<const LlmStage>(
        untied, LayerRange{choice.layer, choice.layer + 1}, options);
  });
  LayerCases result;
  result.module = "llm";
  result.kind = layer_kind(model, choice.module, choice.layer);
  result.layers = parameters_of(layers);
  result.output_bytes_per_token =
      result.kind == LayerKind::kOutputHead
          ? 0
          : static_cast<double>(at::elementSize(options.dtype)) * model.llm.hidden;
  for (const std::int64_t tokens : sizes_of(grid, 4)) {
    if (result.kind == LayerKind::kTokenEmbedding) {
      result.cases.push_back(embedding_case(layers, untied, tokens, options));
    } else if (result.kind == LayerKind::kOutputHead) {
      result.cases.push_back(head_case(layers, untied, tokens, options));
    } else {
      result.terms = CurveTerms::kAttention;
      const std::int64_t width = output_width(model, choice.module, choice.layer - 1);
      for (const std::int64_t samples : segmentations(grid, true, tokens, model.llm.max_tokens)) {
        result.cases.push_back(decoder_case(layers, width, tokens, samples, options));
      }
    }
  }
  return result;
}

LayerCases slice_cases(const ModelSpec& model,
                       const LayerChoice& choice,
                       const CaseGrid& grid,
                       const StageOptions& options,
                       std::int64_t memory_bytes) {
  LayerCases result = choice.module == model.llm_module()
                          ? llm_cases(model, choice, grid, options, memory_bytes)
                          : encoder_cases(model, choice, grid, options, memory_bytes);
  result.tensor_parallel = choice.tensor_parallel;
  result.num_alike = count_alike(model, choice);
  return result;
}

bool divides(const ModelSpec& model, int module, int degree) {
  const auto whole = [degree](std::int64_t value) { return value % degree == 0; };
  if (module == model.llm_module()) {
    const LlmSpec& llm = model.llm;
    return whole(llm.num_heads) && whole(llm.num_kv_heads) && whole(llm.intermediate) &&
           whole(llm.vocab_size);
  }
  const EncoderSpec& encoder = model.encoders[static_cast<std::size_t>(module)];
  return whole(encoder.num_heads) && whole(encoder.intermediate) &&
         whole(merged_tokens(encoder) * encoder.hidden);
}

}  // namespace

void set_trainable(const LayerCases& cases, bool trainable) {
  for (const std::vector<NamedParameter>& layer : cases.layers) {
    for (const NamedParameter& parameter : layer) {
      parameter.tensor.set_requires_grad(trainable);
    }
  }
}

std::int64_t weight_bytes(const std::vector<NamedParameter>& layer) {
  std::int64_t bytes = 0;
  for (const NamedParameter& parameter : layer) {
    bytes += static_cast<std::int64_t>(parameter.tensor.nbytes());
  }
  return bytes;
}

at::Tensor fresh_leaf(at::Tensor input, bool requires_grad) {
  input.set_requires_grad(requires_grad);
  input.mutable_grad() = at::Tensor();
  return input;
}

at::Tensor made_up(const std::vector<std::int64_t>& shape, const StageOptions& options) {
  return at::arange(c10::multiply_integers(shape), at::kFloat)
      .mul_(0.7)
      .sin_()
      .view(shape)
      .to(options.device, options.dtype);
}

SegmentGrid near_square_grid(std::int64_t tokens, std::int64_t merge_size) {
  const std::int64_t blocks = std::max<std::int64_t>(1, tokens / (merge_size * merge_size));
  auto rows = static_cast<std::int64_t>(std::sqrt(static_cast<double>(blocks)));
  rows = std::max<std::int64_t>(1, rows);
  return {rows * merge_size, blocks / rows * merge_size};
}

std::vector<LayerChoice> layer_choices(const ModelSpec& model, const std::vector<int>& degrees) {
  std::vector<LayerChoice> result;
  for (int module = 0; module < model.num_modules(); ++module) {
    for (const int degree : degrees) {
      if (!divides(model, module, degree)) {
        continue;
      }
      // The first layer represents its kind; of decoders the first after those of DeepStack.
      const int deepstack = module == model.llm_module() ? model.llm.deepstack : 0;
      std::set<LayerKind> seen;
      for (int layer = 0; layer < num_layers(model, module); ++layer) {
        const LayerKind kind = layer_kind(model, module, layer);
        const bool earlier =
            kind == LayerKind::kDecoder && layer <= deepstack && layer < model.llm.num_layers;
        if (!earlier && seen.insert(kind).second) {
          result.push_back({module, layer, degree});
        }
      }
    }
  }
  return result;
}

LayerCases layer_cases(const ModelSpec& model,
                       const LayerChoice& choice,
                       const CaseGrid& grid,
                       const StageOptions& options,
                       std::int64_t memory_bytes) {
  StageOptions slice = options;
  slice.tensor_parallel = choice.tensor_parallel;
  LayerCases result = slice_cases(model, choice, grid, slice, memory_bytes);
  if (choice.tensor_parallel > 1) {
    result.on_rank = [model, choice, grid, slice] {
      constexpr std::int64_t kOneLayer = 1;  // byte
      StageOptions rank = slice;
      rank.tensor_group = single_rank(choice.tensor_parallel);
      LayerCases cases = slice_cases(model, choice, grid, rank, kOneLayer);
      cases.keeps_input = false;
      return cases;
    };
  }
  return result;
}

}  // namespace entrain::engine
