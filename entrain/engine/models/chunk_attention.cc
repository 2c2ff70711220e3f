#include "entrain/engine/models/chunk_attention.h"

#include <tuple>
#include <utility>

#include <torch/csrc/autograd/custom_function.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/models/layers.h"

namespace entrain::engine {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [n, H, D] as the kernels take it: [1, H, n, D].
at::Tensor heads_first(const at::Tensor& rows) {
  return rows.transpose(0, 1).unsqueeze(0);
}

at::Tensor rows_first(const at::Tensor& heads) {
  return heads.squeeze(0).transpose(0, 1);
}

// Softmax over the union of pieces: each piece is attended to separately, and the results are
// weighted by the pieces' shares of the row's sum. The kernel's backward computes a piece's
// probabilities from the logarithm of a row's sum; given that of all pieces, and their joint
// result, it computes the piece's share of the exact gradient.
class PiecewiseAttention : public torch::autograd::Function<PiecewiseAttention> {
 public:
  // `pieces`: keys, then values, piece by piece; the last is causal.
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& query,
                            at::TensorList pieces) {
    const std::size_t num_pieces = pieces.size() / 2;
    const at::Tensor q = heads_first(query);
    std::vector<at::Tensor> results;
    std::vector<at::Tensor> sums;  // logarithms, [1, H, n]
    for (std::size_t p = 0; p < num_pieces; ++p) {
      auto [result, sum] =
          at::_scaled_dot_product_flash_attention_for_cpu(q,
                                                          heads_first(pieces[2 * p]),
                                                          heads_first(pieces[2 * p + 1]),
                                                          0.0,
                                                          /*is_causal=*/p + 1 == num_pieces);
      results.push_back(std::move(result));
      sums.push_back(std::move(sum));
    }
    const at::Tensor sum = at::logsumexp(at::stack(sums), 0);
    at::Tensor joint;
    for (std::size_t p = 0; p < num_pieces; ++p) {
      const at::Tensor share = results[p] * at::exp(sums[p] - sum).unsqueeze(-1);
      joint = p == 0 ? share : joint.add_(share);
    }
    joint = joint.to(query.scalar_type());
    std::vector<at::Tensor> saved = {query, joint, sum};
    saved.insert(saved.end(), pieces.begin(), pieces.end());
    context->save_for_backward(std::move(saved));
    return rows_first(joint).reshape({query.size(0), query.size(1) * query.size(2)});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor q = heads_first(saved[0]);
    const at::Tensor gradient = heads_first(gradients[0].reshape(saved[0].sizes()).contiguous());
    const std::size_t num_pieces = (saved.size() - 3) / 2;
    variable_list result(1);
    for (std::size_t p = 0; p < num_pieces; ++p) {
      auto [of_query, of_key, of_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          gradient,
          q,
          heads_first(saved[3 + 2 * p]),
          heads_first(saved[4 + 2 * p]),
          saved[1],
          saved[2],
          0.0,
          /*is_causal=*/p + 1 == num_pieces);
      result[0] = p == 0 ? rows_first(of_query) : result[0].add_(rows_first(of_query));
      result.push_back(rows_first(of_key));
      result.push_back(rows_first(of_value));
    }
    return result;
  }
};

struct Leaf {
  at::Tensor tensor;
};

// The tensor itself; its gradient is that of this graph plus what later graphs accumulated in its
// kept copy.
class KeptForLater : public torch::autograd::Function<KeptForLater> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const Leaf& kept) {
    context->saved_data["kept"] = kept.tensor;
    return tensor;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor kept = context->saved_data["kept"].toTensor();
    const at::Tensor later = std::exchange(kept.mutable_grad(), at::Tensor());
    return {later.defined() ? gradients[0] + later : gradients[0], at::Tensor()};
  }
};

// Keeps the layer's tensor unless an earlier forward of the layer did.
at::Tensor keep(const at::Tensor& tensor,
                bool takes_gradients,
                std::size_t layer,
                std::vector<at::Tensor>& kept) {
  ENTRAIN_INVARIANT(layer <= kept.size(),
                    concat("layer ", layer, " stores keys before the layers below it"));
  if (layer == kept.size()) {
    kept.push_back(tensor.detach().set_requires_grad(takes_gradients));
  }
  return KeptForLater::apply(tensor, Leaf{kept[layer]});
}

// One item; its rows of the packed tensors.
at::Tensor item_attention(const at::Tensor& query,
                          at::Tensor key,
                          at::Tensor value,
                          const PackedItem& item,
                          std::size_t layer) {
  if (item.own) {
    key = keep(key, item.own->takes_gradients, layer, item.own->keys);
    value = keep(value, item.own->takes_gradients, layer, item.own->values);
  }
  if (item.earlier.empty()) {
    return segment_attention(query, key, value, {&item.rows, 1}, /*causal=*/true);
  }
  std::vector<at::Tensor> keys;
  std::vector<at::Tensor> values;
  for (const ChunkKeyValuesPtr& chunk : item.earlier) {
    ENTRAIN_INVARIANT(layer < chunk->keys.size(),
                      concat("layer ", layer, " of an earlier chunk has no keys"));
    keys.push_back(chunk->keys[layer]);
    values.push_back(chunk->values[layer]);
  }
  keys.push_back(std::move(key));
  values.push_back(std::move(value));
  return chunk_attention(query, keys, values);
}

}  // namespace

std::vector<PackedItem> whole_items(std::span<const std::int64_t> lengths) {
  std::vector<PackedItem> items(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    items[i].rows = lengths[i];
  }
  return items;
}

std::vector<at::Tensor> kept_leaves(std::span<const PackedItem> items, std::size_t layer) {
  std::vector<at::Tensor> leaves;
  for (const PackedItem& item : items) {
    for (const ChunkKeyValuesPtr& chunk : item.earlier) {
      if (chunk->takes_gradients) {
        leaves.push_back(chunk->keys.at(layer));
        leaves.push_back(chunk->values.at(layer));
      }
    }
  }
  return leaves;
}

at::Tensor packed_attention(const at::Tensor& query,
                            const at::Tensor& key,
                            const at::Tensor& value,
                            std::span<const PackedItem> items,
                            std::size_t layer) {
  std::vector<std::int64_t> rows;
  bool linked = false;
  for (const PackedItem& item : items) {
    rows.push_back(item.rows);
    linked = linked || item.own || !item.earlier.empty();
  }
  if (!linked) {
    return segment_attention(query, key, value, rows, /*causal=*/true);
  }
  // Split once: narrow() per item makes backward quadratic.
  const std::vector<at::Tensor> queries = at::split_with_sizes(query, rows);
  const std::vector<at::Tensor> keys = at::split_with_sizes(key, rows);
  const std::vector<at::Tensor> values = at::split_with_sizes(value, rows);
  std::vector<at::Tensor> results;
  results.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    results.push_back(item_attention(queries[i], keys[i], values[i], items[i], layer));
  }
  return results.size() == 1 ? results.front() : at::cat(results);
}

at::Tensor chunk_attention(const at::Tensor& query,
                           std::span<const at::Tensor> keys,
                           std::span<const at::Tensor> values) {
  ENTRAIN_INVARIANT(
      !keys.empty() && keys.size() == values.size() && keys.back().size(0) == query.size(0),
      "a chunk's last piece of keys is not its own");
  if (!query.device().is_cpu()) {
    return chunk_attention_masked(query, keys, values);
  }
  std::vector<at::Tensor> pieces;
  for (std::size_t p = 0; p < keys.size(); ++p) {
    pieces.push_back(keys[p]);
    pieces.push_back(values[p]);
  }
  return PiecewiseAttention::apply(query, at::TensorList(pieces));
}

at::Tensor chunk_attention_masked(const at::Tensor& query,
                                  std::span<const at::Tensor> keys,
                                  std::span<const at::Tensor> values) {
  const at::Tensor key = at::cat(at::TensorList(keys.data(), keys.size()));
  const at::Tensor value = at::cat(at::TensorList(values.data(), values.size()));
  const std::int64_t rows = query.size(0);
  const std::int64_t seen = key.size(0);
  const at::Tensor mask =
      at::ones({rows, seen}, query.options().dtype(at::kBool)).tril(seen - rows);
  return dense_attention(query, key, value, /*causal=*/false, mask);
}

}  // namespace entrain::engine
