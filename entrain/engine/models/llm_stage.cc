// The LLM: a Llama-style decoder with rotary positions, grouped queries and a gated MLP, causal
// within each sample.
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/models/layers.h"
#include "entrain/engine/models/parameters.h"
#include "entrain/engine/models/recompute.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/models/tensor_group.h"
#include "entrain/engine/models/weight_gradients.h"

namespace entrain::engine {
namespace {

constexpr std::size_t kDecoderParameters = 9;
constexpr std::size_t kHeadParameters = 2;
constexpr const char* kTableName = "model.embed_tokens.weight";

std::int64_t head_dim_of(const LlmSpec& llm) {
  return llm.head_dim > 0 ? llm.head_dim : llm.hidden / llm.num_heads;
}

LlmSpec slice_of(const LlmSpec& llm, int tensor_parallel) {
  LlmSpec slice = llm;
  slice.head_dim = static_cast<int>(head_dim_of(llm));
  slice.num_heads /= tensor_parallel;
  slice.num_kv_heads /= tensor_parallel;
  slice.intermediate /= tensor_parallel;
  slice.vocab_size /= tensor_parallel;
  return slice;
}

void add_decoder(ParameterBuilder& builder, const LlmSpec& llm, int layer) {
  const std::string prefix = concat("model.layers.", layer - 1, ".");
  const std::int64_t hidden = llm.hidden;
  const std::int64_t intermediate = llm.intermediate;
  const std::int64_t query_width = llm.num_heads * head_dim_of(llm);
  const std::int64_t key_width = llm.num_kv_heads * head_dim_of(llm);
  builder.add_vector(prefix + "input_layernorm.weight", hidden, 1.0);
  const auto add_matrix = [&](const char* name,
                              std::int64_t rows,
                              std::int64_t columns,
                              ParameterRole role,
                              const ParameterSplit& split) {
    builder.add_matrix(prefix + name, rows, columns, role, split);
  };
  constexpr ParameterRole kLinear = ParameterRole::kLinear;
  constexpr ParameterRole kResidual = ParameterRole::kResidualLinear;
  add_matrix("self_attn.q_proj.weight", query_width, hidden, kLinear, kByOutputs);
  add_matrix("self_attn.k_proj.weight", key_width, hidden, kLinear, kByOutputs);
  add_matrix("self_attn.v_proj.weight", key_width, hidden, kLinear, kByOutputs);
  add_matrix("self_attn.o_proj.weight", hidden, query_width, kResidual, kByInputs);
  builder.add_vector(prefix + "post_attention_layernorm.weight", hidden, 1.0);
  add_matrix("mlp.gate_proj.weight", intermediate, hidden, kLinear, kByOutputs);
  add_matrix("mlp.up_proj.weight", intermediate, hidden, kLinear, kByOutputs);
  add_matrix("mlp.down_proj.weight", hidden, intermediate, kResidual, kByInputs);
}

// `weights` in the order of add_decoder(); `layer` counts the stage's; input and result are own
// rows.
at::Tensor run_decoder(const LlmSpec& llm,
                       const TensorGroupPtr& group,
                       const NamedParameter* weights,
                       const at::Tensor& input,
                       std::span<const PackedItem> items,
                       std::size_t layer,
                       const RotaryTable& table) {
  const std::int64_t tokens = table.cosine.size(0);
  const std::int64_t head_dim = head_dim_of(llm);
  const MatrixInput normed =
      gather_input(rms_norm(input, weights[0].tensor, kNormEpsilon), tokens, group);
  const auto heads_of = [&](const at::Tensor& weight, int num_heads) {
    return split_linear(normed.rows, weight, {}, normed.again).view({tokens, num_heads, head_dim});
  };
  const at::Tensor attended =
      packed_attention(rotate(heads_of(weights[1].tensor, llm.num_heads), table),
                       rotate(heads_of(weights[2].tensor, llm.num_kv_heads), table),
                       heads_of(weights[3].tensor, llm.num_kv_heads),
                       items,
                       layer);
  const at::Tensor middle =
      input + reduce_scatter(split_linear(attended, weights[4].tensor), group);
  const MatrixInput wide =
      gather_input(rms_norm(middle, weights[5].tensor, kNormEpsilon), tokens, group);
  return middle +
         reduce_scatter(
             gated_mlp(
                 wide.rows, weights[6].tensor, weights[7].tensor, weights[8].tensor, wide.again),
             group);
}

// `weights`: norm and matrix; `chosen` is own rows of the `rows`, the result all of them at this
// rank's run of the vocabulary.
at::Tensor run_head(const TensorGroupPtr& group,
                    const NamedParameter* weights,
                    const at::Tensor& chosen,
                    std::int64_t rows) {
  const MatrixInput normed =
      gather_input(rms_norm(chosen, weights[0].tensor, kNormEpsilon), rows, group);
  return split_linear(normed.rows, weights[1].tensor, {}, normed.again);
}

}  // namespace

LlmStage::LlmStage(const LlmSpec& llm,
                   LayerRange layers,
                   const StageOptions& options,
                   int recompute)
    : llm_(slice_of(llm, options.tensor_parallel)),
      group_(options.tensor_group),
      layers_(layers),
      recomputed_end_(layers.begin + recompute),
      last_layer_(llm.num_layers + 1) {
  check_layers("llm", layers, last_layer_ + 1);
  ParameterBuilder builder(options, llm.num_layers);
  builder.set_trainable(!llm.frozen);
  const auto add_table = [&](const char* name, ParameterRole role) {
    builder.add_matrix(name, llm.vocab_size, llm.hidden, role, kByOutputs);
  };
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    if (layer == 0) {
      add_table(kTableName, ParameterRole::kEmbedding);
    } else if (layer == last_layer_) {
      builder.add_vector("model.norm.weight", llm.hidden, 1.0);
      if (!llm.tie_word_embeddings) {
        add_table("lm_head.weight", ParameterRole::kLinear);
      } else if (layers.begin > 0) {
        add_table(kTableName, ParameterRole::kEmbedding);
      }
    } else {
      add_decoder(builder, llm, layer);
    }
  }
  parameters_ = builder.take();
  if (layers.end != last_layer_ + 1) {
    return;
  }
  if (llm.tie_word_embeddings && layers.begin == 0) {
    head_ = {parameters_.back(), parameters_.front()};
    return;
  }
  head_ = {parameters_.end() - kHeadParameters, parameters_.end()};
  if (llm.tie_word_embeddings) {
    parameters_.pop_back();
  }
}

at::Tensor LlmStage::table() const {
  return layers_.begin == 0                           ? parameters_.front().tensor
         : llm_.tie_word_embeddings && !head_.empty() ? head_.back().tensor
                                                      : at::Tensor();
}

void LlmStage::use_table(const at::Tensor& table) {
  ENTRAIN_INVARIANT(llm_.tie_word_embeddings && !head_.empty() && layers_.begin > 0,
                    "a table given to a stage that needs none");
  head_.back().tensor = table;
}

at::Tensor LlmStage::embed(const at::Tensor& ids,
                           const at::Tensor& features,
                           const at::Tensor& positions) const {
  ENTRAIN_INVARIANT(layers_.begin == 0, "embed() on an LLM stage that is not the first");
  const at::Tensor embedded = split_lookup(parameters_.front().tensor, ids, group_);
  if (!features.defined() || features.size(0) == 0) {
    return embedded;
  }
  ENTRAIN_INVARIANT(
      features.size(0) == positions.size(0),
      concat(
          "embed(): ", features.size(0), " image features for ", positions.size(0), " positions"));
  return at::index_copy(embedded, 0, positions, features);
}

at::Tensor LlmStage::decode(const at::Tensor& hidden, std::span<const std::int64_t> lengths) const {
  return decode(hidden, whole_items(lengths));
}

at::Tensor LlmStage::decode(const at::Tensor& hidden, std::span<const PackedItem> items) const {
  std::vector<std::int64_t> begins;
  std::vector<std::int64_t> lengths;
  std::int64_t tokens = 0;
  for (const PackedItem& item : items) {
    begins.push_back(item.begin);
    lengths.push_back(item.rows);
    tokens += item.rows;
  }
  ENTRAIN_INVARIANT(
      hidden.dim() == 2 && hidden.size(0) == tokens,
      concat("stage of llm: input of shape ", hidden.sizes(), " for ", tokens, " tokens"));
  const int first = std::max(layers_.begin, 1);
  const int end = std::min(layers_.end, last_layer_);
  if (first >= end) {
    return hidden;
  }
  const RotaryTable table = rotary_table(
      begins, lengths, head_dim_of(llm_), llm_.rope_theta, hidden.options().requires_grad(false));
  const NamedParameter* weights = parameters_.data() + (layers_.begin == 0 ? 1 : 0);
  at::Tensor result = scatter_rows(hidden, group_);
  for (int layer = first; layer < end; ++layer) {
    const auto place = static_cast<std::size_t>(layer - first);
    if (layer < recomputed_end_) {
      // The layer runs again in backward, so its captures must outlive this call.
      const std::vector<PackedItem> kept(items.begin(), items.end());
      result = run_recomputed(
          result,
          {weights, kDecoderParameters},
          [this, weights, kept, place, table](const at::Tensor& x) {
            return run_decoder(llm_, group_, weights, x, kept, place, table);
          },
          kept_leaves(items, place));
    } else {
      result = run_decoder(llm_, group_, weights, result, items, place, table);
    }
    weights += kDecoderParameters;
  }
  return gather_replicated(result, tokens, group_);
}

at::Tensor LlmStage::logits(const at::Tensor& hidden, const at::Tensor& rows) const {
  ENTRAIN_INVARIANT(layers_.end == last_layer_ + 1,
                    "logits() on an LLM stage that is not the last");
  ENTRAIN_INVARIANT(group_ == nullptr, "logits() of a stage on several ranks");
  return run_head(group_, head(), at::index_select(hidden, 0, rows), rows.size(0));
}

at::Tensor LlmStage::loss_sum(const at::Tensor& hidden,
                              const at::Tensor& rows,
                              const at::Tensor& targets) const {
  ENTRAIN_INVARIANT(layers_.end == last_layer_ + 1,
                    "loss_sum() on an LLM stage that is not the last");
  const NamedParameter* weights = head();
  const auto loss = [weights, targets, group = group_](const at::Tensor& chosen) {
    const at::Tensor narrow = run_head(group, weights, chosen, targets.size(0));
    const at::Tensor scores = narrow.to(at::promoteTypes(narrow.scalar_type(), at::kFloat));
    return at::sum(split_cross_entropy(scores, targets, group), at::kDouble);
  };
  const at::Tensor selected = at::index_select(hidden, 0, rows);
  if (rows.size(0) == 0) {
    return at::sum(selected, at::kDouble);
  }
  const at::Tensor chosen = scatter_rows(selected, group_);
  return last_layer_ < recomputed_end_ ? run_recomputed(chosen, {weights, kHeadParameters}, loss)
                                       : loss(chosen);
}

bool LlmStage::keeps_input() const {
  return group_ == nullptr;
}

const NamedParameter* LlmStage::head() const {
  return head_.data();
}

}  // namespace entrain::engine
