#include "entrain/engine/profiler/layer_cases.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace entrain::engine {
namespace {

constexpr double kFloatBytes = 4;

// Values of normal size without a generator: their arithmetic costs what random ones cost.
at::Tensor made_up(std::vector<std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t side : shape) {
    count *= side;
  }
  return at::arange(count, at::kFloat).mul_(0.7).sin_().view(shape);
}

std::vector<std::int64_t> sizes_of(std::int64_t max_tokens, std::int64_t least) {
  std::vector<std::int64_t> sizes;
  for (const std::int64_t share : {16, 4, 1}) {
    sizes.push_back(std::max(least, max_tokens / share));
  }
  return sizes;
}

// Segments of a packed microbatch in its second segmentation: about 128 tokens each.
std::int64_t several_segments(std::int64_t tokens) {
  return std::clamp<std::int64_t>(tokens / 128, 2, 8);
}

LayerCase encoder_case(const std::shared_ptr<const EncoderStage>& stage,
                       const EncoderSpec& encoder,
                       std::int64_t width,
                       std::int64_t tokens,
                       std::int64_t num_segments) {
  const SegmentGrid grid = near_square_grid(tokens / num_segments, encoder.merge_size);
  const std::vector<SegmentGrid> grids(static_cast<std::size_t>(num_segments), grid);
  LayerCase result;
  const auto segment_tokens = static_cast<double>(grid.tokens());
  result.tokens = segment_tokens * static_cast<double>(num_segments);
  result.attention_pairs = result.tokens * segment_tokens;
  result.input = made_up({grid.tokens() * num_segments, width});
  result.forward = [stage, grids, input = result.input] { return stage->forward(input, grids); };
  return result;
}

LayerCases encoder_cases(const ModelSpec& model, int module, int layer, std::int64_t max_tokens) {
  const EncoderSpec& encoder = model.encoders[static_cast<std::size_t>(module)];
  const auto stage = std::make_shared<const EncoderStage>(
      encoder, model.llm.hidden, LayerRange{layer, layer + 1}, StageOptions{});
  LayerCases result;
  result.module = encoder.name;
  result.kind = layer_kind(model, module, layer);
  result.parameters = stage->parameters();
  const std::int64_t block = std::int64_t{encoder.merge_size} * encoder.merge_size;
  const bool attention = result.kind == LayerKind::kEncoderTransformer;
  result.terms = attention ? CurveTerms::kAttention : CurveTerms::kLinear;
  const std::int64_t width = result.kind == LayerKind::kPatchEmbedding
                                 ? std::int64_t{3} * encoder.patch_size * encoder.patch_size
                                 : encoder.hidden;
  result.output_bytes_per_token =
      kFloatBytes * (result.kind == LayerKind::kProjector
                         ? static_cast<double>(model.llm.hidden) / static_cast<double>(block)
                         : encoder.hidden);
  for (const std::int64_t tokens : sizes_of(max_tokens, 2 * block)) {
    result.cases.push_back(encoder_case(stage, encoder, width, tokens, 1));
    if (attention) {
      result.cases.push_back(encoder_case(stage, encoder, width, tokens, several_segments(tokens)));
    }
  }
  return result;
}

LayerCase decoder_case(const std::shared_ptr<const LlmStage>& stage,
                       std::int64_t width,
                       std::int64_t tokens,
                       std::int64_t num_samples) {
  const std::int64_t length = tokens / num_samples;
  const std::vector<std::int64_t> lengths(static_cast<std::size_t>(num_samples), length);
  LayerCase result;
  result.tokens = static_cast<double>(length * num_samples);
  result.attention_pairs = static_cast<double>(num_samples * (length * length / 2));
  result.input = made_up({length * num_samples, width});
  result.forward = [stage, lengths, input = result.input] { return stage->decode(input, lengths); };
  return result;
}

// Half of the positions hold image features.
LayerCase embedding_case(const std::shared_ptr<const LlmStage>& stage,
                         const LlmSpec& llm,
                         std::int64_t tokens) {
  LayerCase result;
  const at::Tensor ids = at::arange(tokens, at::kLong).mul_(7).remainder_(llm.vocab_size);
  const std::int64_t num_features = std::max<std::int64_t>(1, tokens / 2);
  const at::Tensor positions = at::arange(num_features, at::kLong);
  result.tokens = static_cast<double>(tokens);
  result.input = made_up({num_features, llm.hidden});
  result.forward = [stage, ids, positions, input = result.input] {
    return stage->embed(ids, input, positions);
  };
  return result;
}

LayerCase head_case(const std::shared_ptr<const LlmStage>& stage,
                    const LlmSpec& llm,
                    std::int64_t tokens) {
  LayerCase result;
  const at::Tensor rows = at::arange(tokens, at::kLong);
  const at::Tensor targets = rows.mul(7).remainder_(llm.vocab_size);
  result.tokens = static_cast<double>(tokens);
  result.input = made_up({tokens, llm.hidden});
  result.forward = [stage, rows, targets, input = result.input] {
    return stage->loss_sum(input, rows, targets);
  };
  return result;
}

LayerCases llm_cases(const ModelSpec& model, int layer, std::int64_t max_tokens) {
  const auto stage =
      std::make_shared<const LlmStage>(model.llm, LayerRange{layer, layer + 1}, StageOptions{});
  LayerCases result;
  result.module = "llm";
  result.kind = layer_kind(model, model.llm_module(), layer);
  result.parameters = stage->parameters();
  result.output_bytes_per_token =
      result.kind == LayerKind::kOutputHead ? 0 : kFloatBytes * model.llm.hidden;
  for (const std::int64_t tokens : sizes_of(max_tokens, 4)) {
    if (result.kind == LayerKind::kTokenEmbedding) {
      result.cases.push_back(embedding_case(stage, model.llm, tokens));
    } else if (result.kind == LayerKind::kOutputHead) {
      result.cases.push_back(head_case(stage, model.llm, tokens));
    } else {
      result.terms = CurveTerms::kAttention;
      result.cases.push_back(decoder_case(stage, model.llm.hidden, tokens, 1));
      result.cases.push_back(
          decoder_case(stage, model.llm.hidden, tokens, several_segments(tokens)));
    }
  }
  return result;
}

}  // namespace

SegmentGrid near_square_grid(std::int64_t tokens, std::int64_t merge_size) {
  const std::int64_t blocks = std::max<std::int64_t>(1, tokens / (merge_size * merge_size));
  auto rows = static_cast<std::int64_t>(std::sqrt(static_cast<double>(blocks)));
  rows = std::max<std::int64_t>(1, rows);
  return {rows * merge_size, blocks / rows * merge_size};
}

std::vector<LayerCases> layer_cases(const ModelSpec& model, std::int64_t max_tokens) {
  std::vector<LayerCases> result;
  for (int module = 0; module < model.num_modules(); ++module) {
    // First, second and last layer: embedding, transformer, projector or head.
    for (const int layer : {0, 1, num_layers(model, module) - 1}) {
      result.push_back(module == model.llm_module()
                           ? llm_cases(model, layer, max_tokens)
                           : encoder_cases(model, module, layer, max_tokens));
    }
  }
  return result;
}

}  // namespace entrain::engine
