// From one layer's measured points to its entry in a profile.
#pragma once

#include <string>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/profile.h"

#include "entrain/engine/profiler/points.h"

namespace entrain::engine {

// All-reduces of a layer under tensor parallelism: bytes per token of the module (output head: per
// target token) that each rank's partial sums amount to, and how many there are.
struct PartialSums {
  int forward = 0;
  double forward_bytes = 0;   // per token, of all of them together
  int backward = 0;           // in the input gradient; the weight gradient has none
  double backward_bytes = 0;  // likewise
};
PartialSums partial_sums(const ModelSpec& model,
                         const std::string& module,
                         LayerKind kind,
                         double bytes_of_number);

// Curves through the medians of points. backward_weight is the whole backward without the input
// gradient, whatever is left of 0; attention has no weights, so that it is linear in tokens. split
// is what a backward in halves takes beyond a whole one, linear in tokens too. With
// tensor_parallel t > 1 every all-reduce adds 2 (t - 1) times the link's latency per launch and
// 2 (t - 1) / t times its bytes over the link's bandwidth per token.
//
// optimizer_bytes: two moments in float32, and the float32 weights beside others.
// Requires  at least one point, each with repeats.
LayerProfile fit_layer(const ModelSpec& model,
                       const MeasuredLayer& layer,
                       const std::string& dtype,
                       const LinkSpec& link);

}  // namespace entrain::engine
