#include "entrain/core/cost/trained_profile.h"

namespace entrain {

LayerProfile trained_profile(const ModelSpec& model,
                             int module,
                             const LayerCounts& counts,
                             const LayerProfile& whole,
                             std::int64_t dtype_bytes) {
  LayerProfile result = whole;
  if (counts.num_adapters == 0 && (counts.trained == 0 || counts.trained == counts.all)) {
    return result;
  }
  // A table of embeddings is no matrix, but the only thing in its layer that costs time.
  const bool matrices = counts.matrices > 0;
  const auto all = static_cast<double>(matrices ? counts.matrices : counts.all);
  const double adapters = static_cast<double>(counts.adapters) / all;
  const double trained = static_cast<double>((matrices ? counts.trained_matrices : counts.trained) +
                                             counts.trained_adapters) /
                         all;
  result.forward.per_token_ns *= 1 + adapters;
  result.backward_input.per_token_ns *= 1 + adapters;
  result.recompute.per_token_ns *= 1 + adapters;
  result.backward_weight.per_token_ns *= trained;
  result.split.per_token_ns *= trained;
  // A projector's matrices run on merged rows.
  const double rows =
      whole.kind == LayerKind::kProjector
          ? static_cast<double>(merged_tokens(model.encoders[static_cast<std::size_t>(module)]))
          : 1.0;
  result.activation_bytes_per_token +=
      static_cast<double>(counts.adapter_rows * dtype_bytes) / (rows * whole.context_parallel);
  return result;
}

}  // namespace entrain
