// From one layer's measured points to its entry in a profile.
#pragma once

#include <string>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/profile.h"

#include "entrain/engine/profiler/points.h"

namespace entrain::engine {

// Gathers and reduce-scatters of a layer under tensor parallelism, an all-reduce as one of each:
// how many there are, and what they bring together, in bytes per token of the module (output head:
// per target token).
struct RankExchange {
  int count = 0;
  double bytes = 0;
};
struct RankExchanges {
  RankExchange forward;
  RankExchange backward_input;
  RankExchange backward_weight;  // inputs that are kept in shares
};
RankExchanges rank_exchanges(const ModelSpec& model,
                             const std::string& module,
                             LayerKind kind,
                             double bytes_of_number);

// Curves through the means of points' repeats (capped_mean()), since a step's time adds many of
// them up. backward_weight is the whole backward without the input
// gradient, whatever is left of 0; attention has no weights, so that it is linear in tokens. split
// is what a backward in halves takes beyond a whole one, linear in tokens too. With
// tensor_parallel t > 1 every gather or reduce-scatter adds (t - 1) times the link's latency per
// launch and (t - 1) / t times its bytes over the link's bandwidth per token.
//
// optimizer_bytes: two moments in float32, and the float32 weights beside others.
// Requires  at least one point, each with repeats.
LayerProfile fit_layer(const ModelSpec& model,
                       const MeasuredLayer& layer,
                       const std::string& dtype,
                       const LinkSpec& link);

}  // namespace entrain::engine
