#include "entrain/core/spec/parameters.h"

#include <array>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "entrain/core/spec/name_patterns.h"
#include "entrain/core/spec/workload.h"

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
  int level = -1;  // of a DeepStack projector
  bool trainable = true;
};

bool is_adapter(const Local& local) {
  return local.role == ParameterRole::kLoraA || local.role == ParameterRole::kLoraB;
}

std::string layer_prefix(const EncoderSpec& encoder, int layer) {
  const std::string prefix = parameter_prefix(encoder) + ".";
  return layer > 0 && layer <= encoder.num_layers ? fmt::format("{}blocks.{}.", prefix, layer - 1)
                                                  : prefix;
}

std::string layer_prefix(const LlmSpec& llm, int layer) {
  return layer > 0 && layer <= llm.num_layers ? fmt::format("model.layers.{}.", layer - 1)
                                              : std::string();
}

// Without its kind.
std::string full_name(const std::string& prefix, const Local& local) {
  return local.level < 0 ? prefix + local.name
                         : fmt::format("{}deepstack.{}.{}", prefix, local.level, local.name);
}

// Which of a layer's parameters are trained, and which matrices have an adapter.
class Training {
 public:
  Training(const EncoderSpec& encoder, int layer) : block_(encoder) {
    const bool projector = layer > encoder.num_layers;
    frozen_ = projector ? encoder.projector_frozen : encoder.frozen;
    if (by_name()) {
      part_ = projector ? projector_part(encoder) : encoder.name;
      prefix_ = layer_prefix(encoder, layer);
    }
  }
  Training(const LlmSpec& llm, int layer) : block_(llm), frozen_(llm.frozen) {
    if (by_name()) {
      part_ = kLlmPart;
      prefix_ = layer_prefix(llm, layer);
    }
  }

  [[nodiscard]] bool trains(const Local& local) const {
    if (frozen_ || local.role == ParameterRole::kSinusoids) {
      return false;
    }
    return !by_name() || (!is_frozen(local) && (block_.lora.rank == 0 || is_adapter(local) ||
                                                names_parameter(block_.lora.train, of(local))));
  }

  // Requires  a matrix.
  [[nodiscard]] bool adapts(const Local& matrix) const {
    if (frozen_ || block_.lora.rank == 0) {
      return false;
    }
    const ParameterName name = of(matrix);
    return names_matrix(block_.lora.targets, name) &&
           !names_parameter(block_.frozen_parameters, name) &&
           !names_parameter(block_.lora.train, name);
  }
  [[nodiscard]] std::int64_t rank() const { return block_.lora.rank; }

 private:
  [[nodiscard]] bool by_name() const {
    return block_.lora.rank > 0 || !block_.frozen_parameters.empty();
  }
  [[nodiscard]] bool is_frozen(const Local& local) const {
    return names_parameter(block_.frozen_parameters, of(local));
  }
  [[nodiscard]] ParameterName of(const Local& local) const {
    return {part_, full_name(prefix_, local), local.kind};
  }

  const BlockSpec& block_;
  bool frozen_ = false;
  std::string part_;
  std::string prefix_;
};

// Hands a layer's parameters to `visit` one after another.
template <class Visit>
class Lister {
 public:
  Lister(const Training& training, const Visit& visit, int level = -1)
      : training_(training), visit_(visit), level_(level) {}
  [[nodiscard]] Lister of_level(int level) const { return Lister(training_, visit_, level); }

  void gain(const char* name, std::int64_t size) const {
    add({name, ".weight", {size, 1, 1}, 1, ParameterRole::kGain, {}, level_});
  }
  void norm(NormKind kind, const char* name, std::int64_t size) const {
    gain(name, size);
    if (kind == NormKind::kLayer) {
      bias(name, size, {});
    }
  }
  // Rows that are added to tokens.
  void table(const char* name,
             std::int64_t rows,
             std::int64_t columns,
             ParameterRole role = ParameterRole::kEmbedding) const {
    add({name, ".weight", {rows, columns, 1}, 2, role, {}});
  }
  // A matrix without adapter.
  void kernel(const char* name, std::int64_t rows, std::int64_t columns, bool has_bias) const {
    add({name, ".weight", {rows, columns, 1}, 2, ParameterRole::kLinear, {}});
    if (has_bias) {
      bias(name, rows, {});
    }
  }
  void matrix(const char* name,
              std::int64_t rows,
              std::int64_t columns,
              bool has_bias,
              const ParameterSplit& split = {},
              ParameterRole role = ParameterRole::kLinear) const {
    const Local weight = {name, ".weight", {rows, columns, 1}, 2, role, split, level_};
    add(weight);
    if (has_bias) {
      bias(name, rows, split);
    }
    if (role != ParameterRole::kEmbedding && training_.adapts(weight)) {
      const ParameterSplit inputs = split.axis == 1 ? split : ParameterSplit{};
      const ParameterSplit outputs = split.axis == 0 ? split : ParameterSplit{};
      const std::int64_t rank = training_.rank();
      add({name, kLoraA, {rank, columns, 1}, 2, ParameterRole::kLoraA, inputs, level_});
      add({name, kLoraB, {rows, rank, 1}, 2, ParameterRole::kLoraB, outputs, level_});
    }
  }
  void convolution(const char* name, std::int64_t rows, std::int64_t channels) const {
    add({name, ".weight", {rows, channels, kMelKernel}, 3, ParameterRole::kLinear, {}});
    bias(name, rows, {});
  }

 private:
  // A matrix that is sharded by inputs makes partial sums: one rank's bias completes them.
  void bias(const char* name, std::int64_t rows, const ParameterSplit& split) const {
    const ParameterSplit own = split.axis == 0 ? split : ParameterSplit{};
    add({name, ".bias", {rows, 1, 1}, 1, ParameterRole::kBias, own, level_});
  }
  void add(Local local) const {
    local.trainable = training_.trains(local);
    visit_(local);
  }

  const Training& training_;
  const Visit& visit_;
  int level_;
};

// The names of a transformer layer's parts.
struct BlockNames {
  const char* attention_norm;
  const char* query;
  const char* key;
  const char* value;
  const char* output;
  const char* mlp_norm;
};
constexpr BlockNames kEncoderNames = {
    "norm1", "attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.proj", "norm2"};
constexpr BlockNames kLlmNames = {"input_layernorm",
                                  "self_attn.q_proj",
                                  "self_attn.k_proj",
                                  "self_attn.v_proj",
                                  "self_attn.o_proj",
                                  "post_attention_layernorm"};
constexpr BlockNames kCrossNames = {"cross_attn_layernorm",
                                    "cross_attn.q_proj",
                                    "cross_attn.k_proj",
                                    "cross_attn.v_proj",
                                    "cross_attn.o_proj",
                                    ""};

template <class Visit>
void list_attention(const BlockSpec& block, const BlockNames& names, const Lister<Visit>& list) {
  const std::int64_t hidden = block.hidden;
  const std::int64_t head = block.width_of_head();
  const std::int64_t query = block.num_heads * head;
  const std::int64_t key = block.kv_heads() * head;
  if (block.packed_qkv) {
    list.matrix("attn.qkv", 3 * query, hidden, block.qkv_bias, {0, 3});
  } else {
    list.matrix(names.query, query, hidden, block.qkv_bias, kByOutputs);
    list.matrix(names.key, key, hidden, block.qkv_bias && block.key_bias, kByOutputs);
    list.matrix(names.value, key, hidden, block.qkv_bias, kByOutputs);
  }
  if (block.qk_norm) {
    list.gain("self_attn.q_norm", head);
    list.gain("self_attn.k_norm", head);
  }
  list.matrix(
      names.output, hidden, query, block.output_bias, kByInputs, ParameterRole::kResidualLinear);
  if (block.layer_scale) {
    list.gain("scale1", hidden);
  }
}

template <class Visit>
void list_block(const BlockSpec& block, const BlockNames& names, const Lister<Visit>& list) {
  const std::int64_t hidden = block.hidden;
  const std::int64_t inner = block.intermediate;
  list.norm(block.norm, names.attention_norm, hidden);
  list_attention(block, names, list);
  list.norm(block.norm, names.mlp_norm, hidden);
  if (block.gated_mlp) {
    list.matrix("mlp.gate_proj", inner, hidden, block.mlp_bias, kByOutputs);
  }
  list.matrix("mlp.up_proj", inner, hidden, block.mlp_bias, kByOutputs);
  list.matrix(
      "mlp.down_proj", hidden, inner, block.mlp_bias, kByInputs, ParameterRole::kResidualLinear);
  if (block.layer_scale) {
    list.gain("scale2", hidden);
  }
  if (block.post_norm) {
    list.norm(block.norm, "attention_post_norm", hidden);
    list.norm(block.norm, "mlp_post_norm", hidden);
  }
}

template <class Visit>
void list_vision_embedding(const EncoderSpec& encoder, const Lister<Visit>& list) {
  const std::int64_t hidden = encoder.hidden;
  list.kernel("patch_embed.proj", hidden, patch_values(encoder), encoder.patch_bias);
  if (encoder.class_token) {
    list.table("class_token", 1, hidden);
  }
  if (encoder.table_side > 0) {
    const std::int64_t patches = std::int64_t{encoder.table_side} * encoder.table_side;
    list.table("positions", patches + extra_tokens(encoder), hidden);
  }
  if (encoder.embedding_norm) {
    list.norm(encoder.norm, "embedding_norm", hidden);
  }
}

// The names of a projector's parts.
struct ProjectorNames {
  const char* token_norm;
  const char* merged_norm;
  const char* inner;
  const char* last;
};
constexpr ProjectorNames kProjectorNames = {
    "merger.ln_q", "merger.norm", "merger.mlp.0", "merger.mlp.2"};
constexpr ProjectorNames kDeepstackNames = {"", "norm", "mlp.0", "mlp.2"};

template <class Visit>
void list_projector(const EncoderSpec& encoder,
                    int llm_hidden,
                    const ProjectorSpec& projector,
                    const ProjectorNames& names,
                    const Lister<Visit>& list) {
  const std::int64_t merged = merged_width(encoder);
  const std::int64_t inner = projector_width(encoder);
  if (projector.norm_tokens) {
    list.norm(encoder.norm, names.token_norm, encoder.hidden);
  }
  if (projector.norm_merged) {
    list.norm(projector.rms_merged ? NormKind::kRms : encoder.norm, names.merged_norm, merged);
  }
  if (projector.num_matrices == 2) {
    list.matrix(names.inner, inner, merged, projector.bias, kByOutputs);
  }
  if (projector.num_matrices > 0) {
    list.matrix(names.last,
                llm_hidden,
                projector.num_matrices == 2 ? inner : merged,
                projector.bias,
                kByInputs);
  }
}

template <class Visit>
void list_encoder(const EncoderSpec& encoder, int llm_hidden, int layer, const Visit& visit) {
  const Training training(encoder, layer);
  const Lister<Visit> list(training, visit);
  if (layer > encoder.num_layers) {
    list_projector(encoder, llm_hidden, encoder.projector, kProjectorNames, list);
    for (int level = 1; level < feature_levels(encoder); ++level) {
      list_projector(encoder,
                     llm_hidden,
                     projector_of_level(encoder.projector, level),
                     kDeepstackNames,
                     list.of_level(level - 1));
    }
    if (encoder.tiling.kind == TilingSpec::Kind::kAnyResolution) {
      list.table("merger.newline", 1, llm_hidden);
    }
  } else if (layer > 0) {
    list_block(encoder, kEncoderNames, list);
  } else if (encoder.modality == Modality::kVision) {
    list_vision_embedding(encoder, list);
  } else {
    list.convolution("conv1", encoder.hidden, encoder.mel_bands);
    list.convolution("conv2", encoder.hidden, encoder.hidden);
    if (encoder.stored_positions) {
      list.table("positions", window_tokens(encoder), encoder.hidden, ParameterRole::kSinusoids);
    }
  }
}

template <class Visit>
void list_llm(const LlmSpec& llm, int layer, const Visit& visit) {
  const Training training(llm, layer);
  const Lister<Visit> list(training, visit);
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
    if (llm.position_rows > 0) {
      list.table("model.positions", llm.position_rows, llm.hidden);
    }
  } else if (layer <= llm.num_layers) {
    list_block(llm, kLlmNames, list);
    if (llm.cross_attention) {
      list.norm(llm.norm, kCrossNames.attention_norm, llm.hidden);
      list_attention(llm, kCrossNames, list);
    }
  } else {
    list.norm(llm.cross_attention ? llm.norm : NormKind::kRms, "model.norm", llm.hidden);
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
    all.push_back({full_name(prefix, local) + local.kind,
                   {local.shape.begin(), end},
                   local.role,
                   local.split,
                   local.trainable});
  }
};

}  // namespace

std::int64_t ParameterSpec::count() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool is_adapter_name(const std::string& parameter) {
  return parameter.ends_with(kLoraA) || parameter.ends_with(kLoraB);
}

std::string parameter_prefix(const EncoderSpec& encoder) {
  return encoder.name == "vision"  ? "visual"
         : encoder.name == "audio" ? "audio_tower"
                                   : encoder.name;
}

std::vector<ParameterSpec> parameters_of(const EncoderSpec& encoder, int llm_hidden, int layer) {
  std::vector<ParameterSpec> all;
  list_encoder(encoder, llm_hidden, layer, Collect{layer_prefix(encoder, layer), all});
  return all;
}

std::vector<ParameterSpec> parameters_of(const LlmSpec& llm, int layer) {
  std::vector<ParameterSpec> all;
  list_llm(llm, layer, Collect{layer_prefix(llm, layer), all});
  return all;
}

std::vector<ParameterSpec> parameters_of(const ModelSpec& model, int module, int layer) {
  return module == model.llm_module()
             ? parameters_of(model.llm, layer)
             : parameters_of(
                   model.encoders.at(static_cast<std::size_t>(module)), model.llm.hidden, layer);
}

LayerCounts count_parameters(const ModelSpec& model, int module, int layer) {
  LayerCounts counts;
  list_layer(model, module, layer, [&](const Local& local) {
    const std::int64_t own = count(local);
    const std::int64_t trained = local.trainable ? own : 0;
    counts.all += own;
    counts.trained += trained;
    if (local.split.whole()) {
      counts.replicated += own;
      counts.trained_replicated += trained;
    }
    if (is_adapter(local)) {
      counts.adapters += own;
      counts.trained_adapters += trained;
      counts.adapter_rows += local.role == ParameterRole::kLoraA ? local.shape[0] : 0;
      counts.num_adapters += local.role == ParameterRole::kLoraA ? 1 : 0;
    } else if (local.role == ParameterRole::kLinear ||
               local.role == ParameterRole::kResidualLinear) {
      counts.matrices += own;
      counts.trained_matrices += trained;
    }
  });
  return counts;
}

std::int64_t layer_parameters(const ModelSpec& model, int module, int layer) {
  std::int64_t sum = 0;
  list_layer(model, module, layer, [&](const Local& local) { sum += count(local); });
  return sum;
}

bool layer_trainable(const ModelSpec& model, int module, int layer) {
  bool trainable = false;
  list_layer(
      model, module, layer, [&](const Local& local) { trainable = trainable || local.trainable; });
  return trainable;
}

}  // namespace entrain
