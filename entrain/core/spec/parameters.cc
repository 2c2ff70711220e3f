#include "entrain/core/spec/parameters.h"

#include <array>
#include <functional>
#include <numeric>

#include <fmt/format.h>

namespace entrain {
namespace {

// One parameter of a layer without its prefix: nothing is allocated where parameters are counted.
struct Local {
  const char* name;
  const char* kind;  // ".weight", ".bias"
  std::array<std::int64_t, 3> shape;
  std::size_t axes;
  ParameterRole role;
  ParameterSplit split;
};

// Hands a layer's parameters to `visit` one after another.
template <class Visit>
class Lister {
 public:
  explicit Lister(const Visit& visit) : visit_(visit) {}

  void gain(const char* name, std::int64_t size) const {
    visit_({name, ".weight", {size, 1, 1}, 1, ParameterRole::kGain, {}});
  }
  void matrix(const char* name,
              std::int64_t rows,
              std::int64_t columns,
              bool has_bias,
              const ParameterSplit& split = {},
              ParameterRole role = ParameterRole::kLinear) const {
    visit_({name, ".weight", {rows, columns, 1}, 2, role, split});
    if (has_bias) {
      bias(name, rows, split);
    }
  }
  void convolution(const char* name, std::int64_t rows, std::int64_t channels) const {
    visit_({name, ".weight", {rows, channels, kMelKernel}, 3, ParameterRole::kLinear, {}});
    bias(name, rows, {});
  }

 private:
  // A matrix that is sharded by inputs makes partial sums: one rank's bias completes them.
  void bias(const char* name, std::int64_t rows, const ParameterSplit& split) const {
    const ParameterSplit own = split.axis == 0 ? split : ParameterSplit{};
    visit_({name, ".bias", {rows, 1, 1}, 1, ParameterRole::kBias, own});
  }

  const Visit& visit_;
};

template <class Visit>
void list_attention(const BlockSpec& block, bool packed, const Lister<Visit>& list) {
  const std::int64_t hidden = block.hidden;
  const std::int64_t head = block.width_of_head();
  const std::int64_t query = block.num_heads * head;
  const std::int64_t key = block.kv_heads() * head;
  constexpr ParameterRole kResidual = ParameterRole::kResidualLinear;
  if (packed) {
    list.matrix("attn.qkv", 3 * query, hidden, block.qkv_bias, {0, 3});
    list.matrix("attn.proj", hidden, query, block.output_bias, kByInputs, kResidual);
    return;
  }
  list.matrix("self_attn.q_proj", query, hidden, block.qkv_bias, kByOutputs);
  list.matrix("self_attn.k_proj", key, hidden, block.qkv_bias, kByOutputs);
  list.matrix("self_attn.v_proj", key, hidden, block.qkv_bias, kByOutputs);
  if (block.qk_norm) {
    list.gain("self_attn.q_norm", head);
    list.gain("self_attn.k_norm", head);
  }
  list.matrix("self_attn.o_proj", hidden, query, block.output_bias, kByInputs, kResidual);
}

template <class Visit>
void list_block(const BlockSpec& block, bool packed, const Lister<Visit>& list) {
  const std::int64_t hidden = block.hidden;
  const std::int64_t inner = block.intermediate;
  list.gain(packed ? "norm1" : "input_layernorm", hidden);
  list_attention(block, packed, list);
  list.gain(packed ? "norm2" : "post_attention_layernorm", hidden);
  list.matrix("mlp.gate_proj", inner, hidden, block.mlp_bias, kByOutputs);
  list.matrix("mlp.up_proj", inner, hidden, block.mlp_bias, kByOutputs);
  list.matrix(
      "mlp.down_proj", hidden, inner, block.mlp_bias, kByInputs, ParameterRole::kResidualLinear);
}

template <class Visit>
void list_encoder(const EncoderSpec& encoder, int llm_hidden, int layer, const Visit& visit) {
  const Lister<Visit> list(visit);
  const std::int64_t hidden = encoder.hidden;
  if (layer > encoder.num_layers) {
    const std::int64_t merged = merged_tokens(encoder) * hidden;
    list.gain("merger.ln_q", hidden);
    list.matrix("merger.mlp.0", merged, merged, true, kByOutputs);
    list.matrix("merger.mlp.2", llm_hidden, merged, true, kByInputs);
  } else if (layer > 0) {
    list_block(encoder, /*packed=*/true, list);
  } else if (encoder.modality == Modality::kVision) {
    list.matrix("patch_embed.proj", hidden, patch_values(encoder), false);
  } else {
    list.convolution("conv1", hidden, kMelBands);
    list.convolution("conv2", hidden, hidden);
  }
}

template <class Visit>
void list_llm(const LlmSpec& llm, int layer, const Visit& visit) {
  const Lister<Visit> list(visit);
  const auto table = [&] {
    list.matrix("model.embed_tokens",
                llm.vocab_size,
                llm.hidden,
                false,
                kByOutputs,
                ParameterRole::kEmbedding);
  };
  if (layer == 0) {
    table();
  } else if (layer <= llm.num_layers) {
    list_block(llm, /*packed=*/false, list);
  } else {
    list.gain("model.norm", llm.hidden);
    if (llm.tie_word_embeddings) {
      table();
    } else {
      list.matrix("lm_head", llm.vocab_size, llm.hidden, false, kByOutputs);
    }
  }
}

template <class Visit>
void list_layer(const ModelSpec& model, int module, int layer, const Visit& visit) {
  if (module == model.llm_module()) {
    list_llm(model.llm, layer, visit);
  } else {
    list_encoder(
        model.encoders.at(static_cast<std::size_t>(module)), model.llm.hidden, layer, visit);
  }
}

std::int64_t count(const Local& local) {
  return local.shape[0] * local.shape[1] * local.shape[2];
}

// Collects into a list, under a prefix.
struct Collect {
  std::string prefix;
  std::vector<ParameterSpec>& all;

  void operator()(const Local& local) const {
    const auto* end = local.shape.begin() + local.axes;
    all.push_back({fmt::format("{}{}{}", prefix, local.name, local.kind),
                   {local.shape.begin(), end},
                   local.role,
                   local.split});
  }
};

}  // namespace

std::int64_t ParameterSpec::count() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string parameter_prefix(const EncoderSpec& encoder) {
  return encoder.name == "vision"  ? "visual"
         : encoder.name == "audio" ? "audio_tower"
                                   : encoder.name;
}

std::vector<ParameterSpec> parameters_of(const EncoderSpec& encoder, int llm_hidden, int layer) {
  std::vector<ParameterSpec> all;
  const bool block = layer > 0 && layer <= encoder.num_layers;
  const std::string prefix = parameter_prefix(encoder) + ".";
  list_encoder(encoder,
               llm_hidden,
               layer,
               Collect{block ? fmt::format("{}blocks.{}.", prefix, layer - 1) : prefix, all});
  return all;
}

std::vector<ParameterSpec> parameters_of(const LlmSpec& llm, int layer) {
  std::vector<ParameterSpec> all;
  const bool block = layer > 0 && layer <= llm.num_layers;
  list_llm(
      llm, layer, Collect{block ? fmt::format("model.layers.{}.", layer - 1) : std::string(), all});
  return all;
}

std::vector<ParameterSpec> parameters_of(const ModelSpec& model, int module, int layer) {
  return module == model.llm_module()
             ? parameters_of(model.llm, layer)
             : parameters_of(
                   model.encoders.at(static_cast<std::size_t>(module)), model.llm.hidden, layer);
}

std::int64_t layer_parameters(const ModelSpec& model, int module, int layer) {
  std::int64_t sum = 0;
  list_layer(model, module, layer, [&](const Local& local) { sum += count(local); });
  return sum;
}

std::int64_t replicated_parameters(const ModelSpec& model, int module, int layer) {
  std::int64_t sum = 0;
  list_layer(model, module, layer, [&](const Local& local) {
    sum += local.split.whole() ? count(local) : 0;
  });
  return sum;
}

}  // namespace entrain
