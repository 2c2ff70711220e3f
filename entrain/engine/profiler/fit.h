// From measured times to a cost curve.
#pragma once

#include <span>

#include "entrain/core/spec/profile.h"

namespace entrain::engine {

// One measured operation: what it worked on and how long it took.
struct CostPoint {
  double attention_pairs = 0;
  double tokens = 0;
  double nanoseconds = 0;
  double scale = 0;  // what an error is measured against, in nanoseconds; 0: the time itself
};

enum class CurveTerms {
  kAttention,  // pairs, tokens and launch
  kLinear,     // tokens and launch
};

// Non-negative least squares of time = a·pairs + b·tokens + c on errors relative to √time: between
// relative errors, under which the overhead of the smallest operations bends the slope of the large
// ones that a step's time is made of, and plain ones, under which small operations do not count.
// `fit_error` of the result is the largest relative error, `fit_median` their median.
//
// Relative to each point's scale: a time that is the difference of two is as uncertain as those.
// Requires  points not empty, all values finite; fewer points than terms give a curve through them.
// Ensures   all coefficients >= 0; exact (up to rounding) where the points lie on such a curve.
CostCurve fit_curve(std::span<const CostPoint> points, CurveTerms terms);

double predict(const CostCurve& curve, double attention_pairs, double tokens);

}  // namespace entrain::engine
