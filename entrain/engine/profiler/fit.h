// Fits a cost curve to measured times.
#pragma once

#include <span>

#include "entrain/core/spec/profile.h"

namespace entrain::engine {

// One measured operation: its size and its time.
struct CostPoint {
  double attention_pairs = 0;
  double tokens = 0;
  double nanoseconds = 0;
  double scale = 0;  // what an error is relative to, in nanoseconds; 0: the time itself
};

enum class CurveTerms {
  kAttention,  // pairs, tokens and launch
  kLinear,     // tokens and launch
};

// Non-negative least squares of time = a·pairs + b·tokens + c on errors relative to √time. This is
// between relative errors, with which the overhead of small operations bends the slope of the
// large ones that dominate a step, and absolute errors, with which small operations do not count.
// `fit_error` of the result is the largest relative error, `fit_median` their median.
//
// Errors are relative to each point's scale: a difference of two times is as uncertain as they are.
// Requires  points not empty, all values finite; with fewer points than terms the fit is exact.
// Ensures   all coefficients >= 0; exact (up to rounding) if the points are on such a curve.
CostCurve fit_curve(std::span<const CostPoint> points, CurveTerms terms);

double predict(const CostCurve& curve, double attention_pairs, double tokens);

}  // namespace entrain::engine
