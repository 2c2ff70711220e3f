#include "entrain/engine/profiler/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "entrain/core/base/errors.h"

#include "entrain/engine/profiler/statistics.h"

namespace entrain::engine {
namespace {

constexpr std::size_t kTerms = 3;
using Terms = std::array<double, kTerms>;  // pairs, tokens, launch

struct Equations {
  std::array<Terms, kTerms> matrix{};  // AᵀA over relative rows
  Terms right{};                       // Aᵀ·1
  Terms scale{};                       // largest value of each column, for conditioning
};

// Bounded away from zero, or a single point would dominate.
double denominator(const CostPoint& point, double longest) {
  const double scale = point.scale > 0 ? point.scale : point.nanoseconds;
  return std::max({scale, 1e-3 * longest, 1e-9});
}

// What the fit divides errors by: √ of the point's scale.
double fit_denominator(const CostPoint& point, double longest) {
  return std::sqrt(denominator(point, longest) * longest);
}

Terms row_of(const CostPoint& point) {
  return {point.attention_pairs, point.tokens, 1.0};
}

Equations normal_equations(std::span<const CostPoint> points, double longest) {
  Equations equations;
  for (const CostPoint& point : points) {
    const Terms row = row_of(point);
    for (std::size_t i = 0; i < kTerms; ++i) {
      equations.scale[i] =
          std::max(equations.scale[i], std::abs(row[i]) / fit_denominator(point, longest));
    }
  }
  for (const CostPoint& point : points) {
    const double scale = fit_denominator(point, longest);
    Terms row = row_of(point);
    for (std::size_t i = 0; i < kTerms; ++i) {
      row[i] = equations.scale[i] > 0 ? row[i] / scale / equations.scale[i] : 0.0;
    }
    for (std::size_t i = 0; i < kTerms; ++i) {
      for (std::size_t j = 0; j < kTerms; ++j) {
        equations.matrix[i][j] += row[i] * row[j];
      }
      equations.right[i] += row[i] * point.nanoseconds / scale;
    }
  }
  return equations;
}

// Solves the equations restricted to the terms in `support` (bits) by elimination with pivoting;
// nullopt where they do not determine them.
std::optional<Terms> solve(const Equations& equations, unsigned support) {
  std::array<std::size_t, kTerms> chosen{};
  std::size_t size = 0;
  for (std::size_t i = 0; i < kTerms; ++i) {
    if ((support >> i & 1U) != 0) {
      chosen[size++] = i;
    }
  }
  std::array<std::array<double, kTerms + 1>, kTerms> rows{};
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < size; ++j) {
      rows[i][j] = equations.matrix[chosen[i]][chosen[j]];
    }
    rows[i][size] = equations.right[chosen[i]];
  }
  for (std::size_t column = 0; column < size; ++column) {
    std::size_t pivot = column;
    for (std::size_t i = column + 1; i < size; ++i) {
      if (std::abs(rows[i][column]) > std::abs(rows[pivot][column])) {
        pivot = i;
      }
    }
    if (std::abs(rows[pivot][column]) < 1e-12) {
      return std::nullopt;
    }
    std::swap(rows[pivot], rows[column]);
    for (std::size_t i = 0; i < size; ++i) {
      const double factor = i == column ? 0.0 : rows[i][column] / rows[column][column];
      for (std::size_t j = column; j <= size; ++j) {
        rows[i][j] -= factor * rows[column][j];
      }
    }
  }
  Terms result{};
  for (std::size_t i = 0; i < size; ++i) {
    result[chosen[i]] = rows[i][size] / rows[i][i] / equations.scale[chosen[i]];
  }
  return result;
}

double squared_error(const Terms& terms, std::span<const CostPoint> points, double longest) {
  double sum = 0;
  for (const CostPoint& point : points) {
    const Terms row = row_of(point);
    const double predicted = terms[0] * row[0] + terms[1] * row[1] + terms[2];
    const double error = (predicted - point.nanoseconds) / fit_denominator(point, longest);
    sum += error * error;
  }
  return sum;
}

}  // namespace

double predict(const CostCurve& curve, double attention_pairs, double tokens) {
  return curve.per_pair_ns * attention_pairs + curve.per_token_ns * tokens + curve.per_launch_ns;
}

CostCurve fit_curve(std::span<const CostPoint> points, CurveTerms terms) {
  ENTRAIN_INVARIANT(!points.empty(), "no measurements to fit");
  double longest = 0;
  for (const CostPoint& point : points) {
    longest = std::max(longest, point.nanoseconds);
  }
  const Equations equations = normal_equations(points, longest);
  // With three terms every support can be tried: the best feasible one is the optimum.
  const unsigned allowed = terms == CurveTerms::kAttention ? 0b111U : 0b110U;
  Terms best{};
  double best_error = squared_error(best, points, longest);
  for (unsigned support = 1; support <= 0b111U; ++support) {
    if ((support & ~allowed) != 0) {
      continue;
    }
    const std::optional<Terms> candidate = solve(equations, support);
    if (!candidate || *std::min_element(candidate->begin(), candidate->end()) < 0) {
      continue;
    }
    const double error = squared_error(*candidate, points, longest);
    if (error < best_error) {
      best_error = error;
      best = *candidate;
    }
  }
  CostCurve curve{.per_pair_ns = best[0], .per_token_ns = best[1], .per_launch_ns = best[2]};
  std::vector<double> errors;
  for (const CostPoint& point : points) {
    const double error =
        std::abs(predict(curve, point.attention_pairs, point.tokens) - point.nanoseconds);
    errors.push_back(error / denominator(point, longest));
  }
  curve.fit_error = *std::max_element(errors.begin(), errors.end());
  curve.fit_median = median(std::move(errors));
  return curve;
}

}  // namespace entrain::engine
