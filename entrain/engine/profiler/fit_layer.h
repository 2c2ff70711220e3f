// Fits one layer's measured points to its entry in a profile.
#pragma once

#include <string>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/profile.h"

#include "entrain/engine/profiler/points.h"

namespace entrain::engine {

// Gathers and reduce-scatters of a layer under tensor parallelism, an all-reduce counts as one of
// each: their number, and their total bytes per token of the module (output head:
// per target token).
struct RankExchange {
  int count = 0;
  double bytes = 0;
};
struct RankExchanges {
  RankExchange forward;
  RankExchange backward_input;
  RankExchange backward_weight;  // inputs that are kept sharded
};
RankExchanges rank_exchanges(const ModelSpec& model,
                             const std::string& module,
                             LayerKind kind,
                             double bytes_of_number);

// Curves through the means of points' repeats (capped_mean()), since a step's time is a sum of many
// of them. backward_weight is the whole backward less the input
// gradient, at least 0; attention has no weights, so it is linear in tokens. split
// is the extra time of a backward in halves over a whole one, also linear in tokens. With
// tensor_parallel t > 1 every gather or reduce-scatter adds (t - 1) times the link's latency per
// launch and (t - 1) / t times its bytes over the link's bandwidth per token.
//
// optimizer_bytes: two moments in float32, and the float32 masters of narrower weights.
// Requires  at least one point, each with repeats.
LayerProfile fit_layer(const ModelSpec& model,
                       const MeasuredLayer& layer,
                       const std::string& dtype,
                       const LinkSpec& link);

}  // namespace entrain::engine
