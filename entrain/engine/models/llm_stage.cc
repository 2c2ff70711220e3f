// The LLM: a Llama-style decoder with rotary positions, grouped queries and a gated MLP, causal
// within each sample.
#include <utility>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/spec/parameters.h"

#include "entrain/engine/models/block.h"
#include "entrain/engine/models/layers.h"
#include "entrain/engine/models/parameters.h"
#include "entrain/engine/models/recompute.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/models/tensor_group.h"
#include "entrain/engine/models/weight_reader.h"

namespace entrain::engine {
namespace {

LlmSpec slice_of(const LlmSpec& llm, int tensor_parallel) {
  LlmSpec slice = llm;
  slice_block(slice, tensor_parallel);
  slice.vocab_size /= tensor_parallel;
  return slice;
}

// `layer`: the head's parameters; `chosen` is own rows of the `rows`, the result all of them at
// this rank's run of the vocabulary.
at::Tensor run_head(const LlmSpec& llm,
                    const TensorGroupPtr& group,
                    std::span<const NamedParameter> layer,
                    const at::Tensor& chosen,
                    std::int64_t rows) {
  WeightReader weights(layer, llm.lora);
  const MatrixInput normed =
      gather_input(weights.normed(NormKind::kRms, chosen, llm.norm_epsilon), rows, group);
  return linear(normed.rows, weights.matrix(/*has_bias=*/false), normed.again);
}

// Rotations of the items' rows.
RotaryTable table_of(const LlmSpec& llm,
                     std::span<const PackedItem> items,
                     const at::TensorOptions& options) {
  if (!llm.mrope_sections.empty()) {
    std::vector<AxisPosition> positions;
    for (const PackedItem& item : items) {
      ENTRAIN_INVARIANT(std::ssize(item.positions) == item.rows,
                        concat(item.positions.size(), " positions for ", item.rows, " rows"));
      positions.insert(positions.end(), item.positions.begin(), item.positions.end());
    }
    return rotary_table(positions,
                        llm.mrope_sections,
                        llm.mrope_interleaved,
                        llm.rope_theta,
                        options,
                        llm.rope_scaling);
  }
  std::vector<std::int64_t> begins;
  std::vector<std::int64_t> lengths;
  for (const PackedItem& item : items) {
    begins.push_back(item.begin);
    lengths.push_back(item.rows);
  }
  return rotary_table(
      begins, lengths, llm.width_of_head(), llm.rope_theta, options, llm.rope_scaling);
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
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    for (const ParameterSpec& parameter : parameters_of(llm, layer)) {
      const bool held =
          layer == last_layer_ && layers.begin == 0 && parameter.role == ParameterRole::kEmbedding;
      if (!held) {
        parameters_.push_back(initial_parameter(parameter, options, llm.num_layers));
      }
    }
    ends_.push_back(parameters_.size());
  }
  if (layers.end != last_layer_ + 1) {
    return;
  }
  if (llm.tie_word_embeddings && layers.begin == 0) {
    head_ = {parameters_.back(), parameters_.front()};
    return;
  }
  const std::size_t others = ends_.size() > 1 ? ends_[ends_.size() - 2] : 0;
  head_ = {parameters_.begin() + static_cast<std::ptrdiff_t>(others), parameters_.end()};
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
  at::Tensor embedded = split_lookup(parameters_.front().tensor, ids, group_);
  if (llm_.deepstack > 0) {
    const at::Tensor nothing =
        at::zeros({ids.size(0), std::int64_t{llm_.deepstack} * llm_.hidden}, embedded.options());
    embedded = at::cat({embedded, nothing}, 1);
  }
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
  std::vector<PackedItem> items = whole_items(lengths);
  if (!llm_.mrope_sections.empty()) {
    for (PackedItem& item : items) {
      item.positions = multimodal_positions(item.rows, {});
    }
  }
  return decode(hidden, items);
}

at::Tensor LlmStage::decode(const at::Tensor& hidden, std::span<const PackedItem> items) const {
  std::int64_t tokens = 0;
  for (const PackedItem& item : items) {
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
  const RotaryTable table = table_of(llm_, items, hidden.options().requires_grad(false));
  std::vector<at::Tensor> later = side_by_side(scatter_rows(hidden, group_), llm_.hidden);
  at::Tensor result = std::exchange(later.front(), at::Tensor());
  std::size_t added = 1;
  for (int layer = first; layer < end; ++layer) {
    const auto index = static_cast<std::size_t>(layer - layers_.begin);
    const std::size_t begin = index == 0 ? 0 : ends_[index - 1];
    const std::span<const NamedParameter> weights(parameters_.data() + begin, ends_[index] - begin);
    const auto place = static_cast<std::size_t>(layer - first);
    const auto run = [this, weights, tokens, place, table](std::span<const PackedItem> of,
                                                           const at::Tensor& x) {
      return run_block(
          llm_,
          group_,
          weights,
          x,
          tokens,
          &table,
          [&](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
            return packed_attention(query, key, value, of, place);
          });
    };
    if (layer < recomputed_end_) {
      // The layer runs again in backward, so its captures must outlive this call.
      const std::vector<PackedItem> kept(items.begin(), items.end());
      result = run_recomputed(
          result,
          weights,
          [run, kept](const at::Tensor& x) { return run(kept, x); },
          kept_leaves(items, place));
    } else {
      result = run(items, result);
    }
    if (added < later.size()) {
      result = result + std::exchange(later[added++], at::Tensor());
    }
  }
  if (added < later.size()) {
    later[--added] = result;
    result = at::cat(at::TensorList(later).slice(added), 1);
  }
  return gather_replicated(result, tokens, group_);
}

at::Tensor LlmStage::logits(const at::Tensor& hidden, const at::Tensor& rows) const {
  ENTRAIN_INVARIANT(layers_.end == last_layer_ + 1,
                    "logits() on an LLM stage that is not the last");
  ENTRAIN_INVARIANT(group_ == nullptr, "logits() of a stage on several ranks");
  return run_head(llm_, group_, head_, at::index_select(hidden, 0, rows), rows.size(0));
}

at::Tensor LlmStage::loss_sum(const at::Tensor& hidden,
                              const at::Tensor& rows,
                              const at::Tensor& targets) const {
  ENTRAIN_INVARIANT(layers_.end == last_layer_ + 1,
                    "loss_sum() on an LLM stage that is not the last");
  const auto loss = [this, targets, group = group_](const at::Tensor& chosen) {
    const at::Tensor narrow = run_head(llm_, group, head_, chosen, targets.size(0));
    const at::Tensor scores = narrow.to(at::promoteTypes(narrow.scalar_type(), at::kFloat));
    return at::sum(split_cross_entropy(scores, targets, group), at::kDouble);
  };
  const at::Tensor selected = at::index_select(hidden, 0, rows);
  if (rows.size(0) == 0) {
    return at::sum(selected, at::kDouble);
  }
  const at::Tensor chosen = scatter_rows(selected, group_);
  return last_layer_ < recomputed_end_ ? run_recomputed(chosen, head_, loss) : loss(chosen);
}

bool LlmStage::keeps_input() const {
  return group_ == nullptr && (llm_.deepstack == 0 || layers_.begin > llm_.deepstack);
}

}  // namespace entrain::engine
