#include "entrain/core/cost/sharding.h"

#include <initializer_list>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

Exchange operator+(const Exchange& a, const Exchange& b) {
  return {a.bytes_per_token + b.bytes_per_token, a.collectives + b.collectives};
}

// The collectives of a lane's tensor ranks and of its context ranks.
class Lane {
 public:
  Lane(int tensor, int context, double bytes) : tensor_(tensor), context_(context), bytes_(bytes) {}

  // `count` gathers or reduce-scatters of [tokens, width] among the tensor ranks.
  [[nodiscard]] Exchange gather(double width, int count) const {
    return tensor_ == 1
               ? Exchange{}
               : Exchange{count * width * bytes_ * (tensor_ - 1) / tensor_ / context_, count};
  }
  // `count` times the keys and values of all other context ranks.
  [[nodiscard]] Exchange keys_and_values(double key_width, int count) const {
    return context_ == 1
               ? Exchange{}
               : Exchange{count * 2 * key_width * bytes_ / tensor_ * (context_ - 1) / context_,
                          count};
  }

 private:
  double tensor_;
  double context_;
  double bytes_;
};

LayerExchange transformer_exchange(const Lane& lane, double hidden, double key_width) {
  return {lane.gather(hidden, 4) + lane.keys_and_values(key_width, 1),
          lane.gather(hidden, 4) + lane.keys_and_values(key_width, 2),
          lane.gather(hidden, 2)};
}

}  // namespace

std::string sharding_obstacle(const ModelSpec& model, int module, int tensor_parallel) {
  const auto obstacle = [&](const char* key, int width) {
    return width % tensor_parallel == 0 ? std::string()
                                        : fmt::format("{} {} of '{}' is not divisible by {}",
                                                      key,
                                                      width,
                                                      module_name(model, module),
                                                      tensor_parallel);
  };
  const auto first = [](std::initializer_list<std::string> obstacles) {
    for (const std::string& found : obstacles) {
      if (!found.empty()) {
        return found;
      }
    }
    return std::string();
  };
  if (module != model.llm_module()) {
    const EncoderSpec& encoder = model.encoders[static_cast<std::size_t>(module)];
    return first(
        {obstacle("num_heads", encoder.num_heads),
         obstacle("intermediate", encoder.intermediate),
         obstacle("projector width",
                  static_cast<int>(encoder.projector.num_matrices == 2 ? projector_width(encoder)
                                                                       : merged_width(encoder)))});
  }
  const LlmSpec& llm = model.llm;
  return first({obstacle("num_heads", llm.num_heads),
                obstacle("num_kv_heads", llm.num_kv_heads),
                obstacle("intermediate", llm.intermediate),
                obstacle("vocab_size", llm.vocab_size)});
}

LayerWork device_work(const ModelSpec& model,
                      int module,
                      int layer,
                      double bytes,
                      int tensor_parallel,
                      int context_parallel) {
  LayerWork work = layer_work(model, module, layer, bytes);
  const double devices = static_cast<double>(tensor_parallel) * context_parallel;
  const LayerKind kind = layer_kind(model, module, layer);
  const bool convolves = kind == LayerKind::kAudioEmbedding;
  const bool all_tokens = convolves || kind == LayerKind::kTokenEmbedding;
  const double shares = all_tokens ? context_parallel : devices;
  work.matrix_flops /= convolves ? context_parallel : devices;
  work.attention_flops /= devices;
  work.moved_bytes /= shares;
  work.weight_moved_bytes /= shares;
  work.input_bytes /= shares;
  work.activation_bytes /= shares;
  work.output_bytes /= devices;
  return work;
}

LayerExchange layer_exchange(const ModelSpec& model,
                             int module,
                             int layer,
                             double bytes,
                             int tensor_parallel,
                             int context_parallel) {
  const Lane lane(tensor_parallel, context_parallel, bytes);
  const LlmSpec& llm = model.llm;
  switch (layer_kind(model, module, layer)) {
    case LayerKind::kPatchEmbedding:
    case LayerKind::kAudioEmbedding:
      return {};
    case LayerKind::kEncoderTransformer:
    case LayerKind::kWindowedTransformer:
    case LayerKind::kDecoder: {
      if (module == model.llm_module()) {
        return transformer_exchange(
            lane, llm.hidden, static_cast<double>(llm.num_kv_heads) * llm.head_dim);
      }
      const double hidden = model.encoders[static_cast<std::size_t>(module)].hidden;
      return transformer_exchange(lane, hidden, hidden);
    }
    case LayerKind::kProjector: {
      const EncoderSpec& encoder = model.encoders[static_cast<std::size_t>(module)];
      const int levels = feature_levels(encoder);
      const Exchange in = lane.gather(encoder.hidden, levels);
      const Exchange out =
          lane.gather(layer_work(model, module, layer, 1).output_bytes / levels, levels);
      return {in + out, in + out, in};
    }
    case LayerKind::kTokenEmbedding:
      return {lane.gather(llm.hidden, 1), {}, lane.gather(llm.hidden, 1)};
    case LayerKind::kOutputHead: {
      const Exchange gather = lane.gather(llm.hidden, 1);
      // An all-reduce receives twice as much as a gather.
      const Exchange loss = Lane(tensor_parallel, context_parallel, 4).gather(2, 3);
      return {gather + loss, gather, gather};
    }
  }
  ENTRAIN_INVARIANT(false, "unknown layer kind");
}

}  // namespace entrain
