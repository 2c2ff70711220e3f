#include "entrain/core/planner/split_bound.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

// Beyond this a data set has no use of the number.
constexpr std::int64_t kMostSamples = std::int64_t{1} << 50;

}  // namespace

FormMoments form_moments(const SplitBoundary& boundary, const WorkTimes& work_ns) {
  ENTRAIN_INVARIANT(work_ns.size() == boundary.coefficients.size() && !work_ns.front().empty(),
                    "moments of a form need samples of every module");
  std::vector<double> values(work_ns.front().size(), 0.0);
  for (std::size_t m = 0; m < work_ns.size(); ++m) {
    for (std::size_t sample = 0; sample < values.size(); ++sample) {
      values[sample] +=
          static_cast<double>(boundary.coefficients[m]) * static_cast<double>(work_ns[m][sample]);
    }
  }
  const auto count = static_cast<double>(values.size());
  FormMoments moments;
  for (const double value : values) {
    moments.mean += value / count;
  }
  for (const double value : values) {
    const double over = value - moments.mean;
    moments.variance += over * over / count;
    moments.most_over = std::max(moments.most_over, over);
  }
  return moments;
}

double crossing_bound(const FormMoments& moments, double batch) {
  if (!(moments.mean < 0)) {
    return 1;
  }
  if (moments.mean + moments.most_over < 0) {
    return 0;
  }
  const double square = batch * moments.mean * moments.mean;
  const double cantelli = moments.variance / (moments.variance + square);
  const double spread = 2 * moments.variance - moments.most_over * moments.mean * 2 / 3;
  return std::min(cantelli, spread > 0 ? std::exp(-square / spread) : 0.0);
}

std::int64_t proven_stable_batch(const SplitRegion& region,
                                 const WorkTimes& work_ns,
                                 double error) {
  std::vector<FormMoments> forms;
  for (const SplitBoundary& boundary : region.boundaries) {
    forms.push_back(form_moments(boundary, work_ns));
  }
  const auto proven = [&](std::int64_t batch) {
    double bound = 0;
    for (const FormMoments& form : forms) {
      bound += crossing_bound(form, static_cast<double>(batch));
    }
    return bound <= error;
  };
  std::int64_t high = 1;
  while (!proven(high)) {
    high *= 2;
    if (high > kMostSamples) {
      return 0;
    }
  }
  std::int64_t low = high / 2;  // not proven, or 0
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (proven(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace entrain
