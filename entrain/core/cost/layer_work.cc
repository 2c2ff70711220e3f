#include "entrain/core/cost/layer_work.h"

#include <algorithm>

namespace entrain {
namespace {

// A pre-norm transformer layer with rotary positions and a gated MLP.
LayerWork transformer_work(const BlockSpec& block, double bytes) {
  const double hidden = block.hidden;
  const double query = static_cast<double>(block.num_heads) * block.width_of_head();
  const double key = static_cast<double>(block.kv_heads()) * block.width_of_head();
  const double intermediate = block.intermediate;
  const double head_norms = block.qk_norm ? query + key : 0;
  LayerWork work;
  const double matrices = block.gated_mlp ? 3 : 2;
  const double weights =
      hidden * query + 2 * hidden * key + query * hidden + matrices * hidden * intermediate;
  work.matrix_flops = 2 * weights;
  work.attention_flops = 4 * query;
  const double post_norms = block.post_norm ? 2 * hidden : 0;
  const double norms = 2 * 2 * hidden + 2 * post_norms;
  const double residuals = 2 * 3 * hidden;
  const double rotary = 2 * (query + key);
  const double gate = matrices * intermediate;  // gate, up and product, or what is activated
  work.moved_bytes = (norms + residuals + rotary + gate + 2 * head_norms) * bytes;
  work.input_bytes = hidden * bytes;
  // Inputs and results of both norms, queries, keys, values, attention's result, the MLP's gate, up
  // and product; the inputs of heads' norms and of those after.
  work.activation_bytes =
      (4 * hidden + 2 * query + 2 * key + head_norms + post_norms + matrices * intermediate) *
      bytes;
  work.output_bytes = hidden * bytes;
  return work;
}

// A decoder, with what a token has of cross attention: norm, query, output matrix and sum. Pairs
// hold the keys and values of features (workload.h).
LayerWork decoder_work(const LlmSpec& llm, double bytes) {
  LayerWork work = transformer_work(llm, bytes);
  if (llm.cross_attention) {
    const double hidden = llm.hidden;
    const double query = static_cast<double>(llm.num_heads) * llm.head_dim;
    work.matrix_flops += 2 * 2 * hidden * query;
    work.moved_bytes += (2 + 3) * hidden * bytes;
    work.activation_bytes += (2 * hidden + 2 * query) * bytes;
  }
  return work;
}

// Of a segment's tokens those that are patches: a class token is neither embedded nor projected.
double share_of_patches(const EncoderSpec& encoder) {
  const double patches = static_cast<double>(encoder.table_side) * encoder.table_side;
  return encoder.class_token ? patches / (patches + extra_tokens(encoder)) : 1.0;
}

LayerWork one_projector_work(const EncoderSpec& encoder,
                             const ProjectorSpec& spec,
                             double llm_hidden,
                             double bytes) {
  const auto merge = static_cast<double>(merged_tokens(encoder));
  const double hidden = encoder.hidden;
  const auto merged = static_cast<double>(merged_width(encoder));
  const auto inner = static_cast<double>(projector_width(encoder));
  const bool two = spec.num_matrices == 2;
  // The norms before, the activation between the two matrices.
  const double normed =
      (spec.norm_tokens ? 2 * hidden : 0) + (spec.norm_merged ? 2 * merged / merge : 0);
  const double between = two ? 2 * inner / merge : 0;
  LayerWork work;
  const double weights = two                      ? merged * inner + inner * llm_hidden
                         : spec.num_matrices == 1 ? merged * llm_hidden
                                                  : 0;
  work.matrix_flops = 2 * weights / merge * share_of_patches(encoder);
  work.moved_bytes = (normed + between) * bytes;
  work.input_bytes = hidden * bytes;
  work.activation_bytes = (std::max(normed, merged / merge) + between) * bytes;
  work.output_bytes = llm_hidden / merge * bytes;
  return work;
}

// All levels of DeepStack.
LayerWork projector_work(const EncoderSpec& encoder, double llm_hidden, double bytes) {
  LayerWork sum;
  for (int level = 0; level < feature_levels(encoder); ++level) {
    const LayerWork work = one_projector_work(
        encoder, projector_of_level(encoder.projector, level), llm_hidden, bytes);
    sum.matrix_flops += work.matrix_flops;
    sum.moved_bytes += work.moved_bytes;
    sum.input_bytes += work.input_bytes;
    sum.activation_bytes += work.activation_bytes;
    sum.output_bytes += work.output_bytes;
  }
  return sum;
}

LayerWork patch_embedding_work(const EncoderSpec& encoder, double bytes) {
  const auto pixels = static_cast<double>(patch_values(encoder));
  LayerWork work;
  work.matrix_flops = 2 * pixels * encoder.hidden * share_of_patches(encoder);
  work.input_bytes = pixels * bytes;
  work.activation_bytes = pixels * bytes;
  work.output_bytes = encoder.hidden * bytes;
  return work;
}

LayerWork audio_embedding_work(const EncoderSpec& encoder, double bytes) {
  constexpr double kFrames = 2;  // of the first convolution per token, which is the second's stride
  const double hidden = encoder.hidden;
  LayerWork work;
  work.matrix_flops =
      2 * (kFrames * encoder.mel_bands * kMelKernel * hidden + hidden * kMelKernel * hidden);
  // An activation after each convolution.
  work.moved_bytes = 2 * (kFrames + 1) * hidden * bytes;
  work.input_bytes = kFrames * encoder.mel_bands * bytes;
  work.activation_bytes = work.input_bytes + 2 * (kFrames + 1) * hidden * bytes;
  work.output_bytes = hidden * bytes;
  return work;
}

// `levels` of DeepStack are placed among the tokens here, and added after their layers.
LayerWork token_embedding_work(double hidden, double bytes, int levels) {
  constexpr double kTokenIdBytes = 8;
  LayerWork work;
  work.moved_bytes = (2 + 5 * levels) * hidden * bytes;
  work.weight_moved_bytes = 3 * hidden * bytes;
  work.input_bytes = kTokenIdBytes;
  work.activation_bytes = kTokenIdBytes;
  work.output_bytes = hidden * bytes;
  return work;
}

LayerWork output_head_work(double hidden, double vocabulary, double bytes) {
  LayerWork work;
  work.matrix_flops = 2 * hidden * vocabulary;
  work.moved_bytes = (2 * hidden + 2 * vocabulary) * bytes;
  work.input_bytes = hidden * bytes;
  work.activation_bytes = (2 * hidden + vocabulary) * bytes;
  return work;
}

}  // namespace

LayerWork layer_work(const ModelSpec& model, int module, int layer, double bytes) {
  const LlmSpec& llm = model.llm;
  const LayerKind kind = layer_kind(model, module, layer);
  if (module == model.llm_module()) {
    switch (kind) {
      case LayerKind::kTokenEmbedding:
        return token_embedding_work(llm.hidden, bytes, llm.deepstack);
      case LayerKind::kOutputHead:
        return output_head_work(llm.hidden, llm.vocab_size, bytes);
      default:
        return decoder_work(llm, bytes);
    }
  }
  const EncoderSpec& encoder = model.encoders[static_cast<std::size_t>(module)];
  switch (kind) {
    case LayerKind::kPatchEmbedding:
      return patch_embedding_work(encoder, bytes);
    case LayerKind::kAudioEmbedding:
      return audio_embedding_work(encoder, bytes);
    case LayerKind::kProjector: {
      LayerWork work = projector_work(encoder, llm.hidden, bytes);
      if (llm.cross_attention) {
        // Every decoder's keys and values: they are as many as the encoder's tokens, not the LLM's.
        work.activation_bytes += 2.0 * llm.num_layers * llm.num_kv_heads * llm.head_dim * bytes;
      }
      return work;
    }
    default:
      return transformer_work(encoder, bytes);
  }
}

}  // namespace entrain
