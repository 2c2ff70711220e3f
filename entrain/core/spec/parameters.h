// The parameters of every layer: names, shapes, roles, and how tensor parallelism shards them.
//
// Read first: parameters_of(). Stages, weights on disk, parameter counts and memory all come from
// this list. Names are those of Hugging Face's Llama and Qwen2-VL.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/spec/model.h"

namespace entrain {

// What a parameter is, which decides its initial values (engine/models/parameters.h).
enum class ParameterRole : std::uint8_t {
  kLinear,          // [out, in] matrix, or a convolution's kernel [out, in, …]
  kResidualLinear,  // matrix whose output is added to the residual stream
  kEmbedding,       // table of token vectors
  kGain,            // of a norm
  kBias,
  kSinusoids,  // table of Whisper's positions, which is never trained
  kLoraA,      // of an adapter: [rank, in]
  kLoraB,      // [out, rank]
};

// The axis that is sharded into equal runs, one per rank of a lane under tensor parallelism. If the
// axis holds several blocks, such as the queries, keys and values of one matrix, every block is
// sharded and a rank has a run of each.
struct ParameterSplit {
  int axis = -1;   // -1: replicated on every rank
  int blocks = 1;  // >= 1, divides the axis
  [[nodiscard]] bool whole() const { return axis < 0; }
  bool operator==(const ParameterSplit&) const = default;
};
inline constexpr ParameterSplit kByOutputs{0};
inline constexpr ParameterSplit kByInputs{1};

struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> shape;  // of the whole parameter
  ParameterRole role = ParameterRole::kLinear;
  ParameterSplit split = {};
  bool trainable = true;
  [[nodiscard]] std::int64_t count() const;
};

// Prefix of an encoder's parameters: "visual" for an encoder named vision, "audio_tower" for audio,
// else the encoder's own name.
std::string parameter_prefix(const EncoderSpec& encoder);

// Of one layer, in the order in which a stage holds them.
//
// patch embedding   patch_embed.proj [hidden, patch_values()], class_token [1, hidden], positions,
//                   embedding_norm
// audio embedding   conv1, conv2: weight [hidden, in, kMelKernel], bias; positions [tokens of a
// full
//                   window, hidden]
// transformer       norm1, attn.qkv [3 · hidden, hidden] or attn.{q,k,v}_proj, attn.proj, scale1,
//                   norm2, mlp.{gate,up,down}_proj, scale2, {attention,mlp}_post_norm
// projector         merger.ln_q, merger.norm, merger.mlp.0, merger.mlp.2 [llm_hidden, …], and per
//                   level of DeepStack deepstack.L.norm, deepstack.L.mlp.0, deepstack.L.mlp.2;
//                   merger.newline [1, llm_hidden]
// token embedding   model.embed_tokens.weight [vocab_size, hidden], model.positions
// decoder           input_layernorm, self_attn.{q,k,v}_proj, self_attn.{q,k}_norm,
// self_attn.o_proj,
//                   post_attention_layernorm, mlp as above, cross_attn_layernorm,
//                   cross_attn.{q,k,v,o}_proj
// output head       model.norm, and lm_head; a tied one has the embedding's table instead
//
// each that the model has, with a bias where it has one after its weight, and after both a matrix's
// adapter, NAME.lora_A.weight and NAME.lora_B.weight. Of a matrix that is sharded by outputs B is
// sharded likewise and A replicated; of one sharded by inputs A is sharded.
//
// What is trainable and has adapters: training.h. Tables, the patch embedding and convolutions have
// none.
std::vector<ParameterSpec> parameters_of(const EncoderSpec& encoder, int llm_hidden, int layer);
std::vector<ParameterSpec> parameters_of(const LlmSpec& llm, int layer);
std::vector<ParameterSpec> parameters_of(const ModelSpec& model, int module, int layer);

// Numbers of a layer's parameters.
struct LayerCounts {
  std::int64_t all = 0;
  std::int64_t replicated = 0;  // of these, what every rank of a lane holds in full
  std::int64_t trained = 0;
  std::int64_t trained_replicated = 0;
  std::int64_t matrices = 0;  // of all: matrices and convolutions without adapters
  std::int64_t trained_matrices = 0;
  std::int64_t adapters = 0;
  std::int64_t trained_adapters = 0;
  std::int64_t adapter_rows = 0;  // the sum of their ranks
  int num_adapters = 0;

  // What each device of a lane holds, whose tensor parallelism has no sharding_obstacle(); context
  // parallelism divides nothing.
  [[nodiscard]] std::int64_t per_device(int tensor_parallel) const {
    return replicated + (all - replicated) / tensor_parallel;
  }
  [[nodiscard]] std::int64_t trained_per_device(int tensor_parallel) const {
    return trained_replicated + (trained - trained_replicated) / tensor_parallel;
  }
  bool operator==(const LayerCounts&) const = default;
};
LayerCounts count_parameters(const ModelSpec& model, int module, int layer);

// Of an adapter's matrices, after the name of theirs.
inline constexpr const char* kLoraA = ".lora_A.weight";
inline constexpr const char* kLoraB = ".lora_B.weight";
bool is_adapter_name(const std::string& parameter);

inline constexpr const char* kTokenTableName = "model.embed_tokens.weight";

}  // namespace entrain
