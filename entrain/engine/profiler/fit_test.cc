#include "entrain/engine/profiler/fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

namespace entrain::engine {
namespace {

// Six points as the quick profile measures them: three sizes in two segmentations.
std::vector<CostPoint> points_of(double per_pair, double per_token, double per_launch) {
  std::vector<CostPoint> points;
  for (const double tokens : {64.0, 256.0, 1024.0}) {
    for (const double segments : {1.0, 4.0}) {
      const double pairs = tokens * tokens / segments;
      points.push_back({pairs, tokens, per_pair * pairs + per_token * tokens + per_launch});
    }
  }
  return points;
}

TEST(FitCurve, FindsTheCurveThatMadeThePoints) {
  const CostCurve curve = fit_curve(points_of(0.7, 5000, 30000), CurveTerms::kAttention);
  EXPECT_NEAR(curve.per_pair_ns, 0.7, 1e-6);
  EXPECT_NEAR(curve.per_token_ns, 5000, 1e-3);
  EXPECT_NEAR(curve.per_launch_ns, 30000, 1e-1);
  EXPECT_LT(curve.fit_error, 1e-9);
  EXPECT_NEAR(predict(curve, 1e6, 2000), 0.7e6 + 1e7 + 30000, 1);
}

TEST(FitCurve, LeavesOutTermsThatAreNotThere) {
  const CostCurve linear = fit_curve(points_of(0, 5000, 0), CurveTerms::kAttention);
  EXPECT_NEAR(linear.per_pair_ns, 0, 1e-6);
  EXPECT_NEAR(linear.per_token_ns, 5000, 1e-3);
  const CostCurve asked = fit_curve(points_of(0.5, 5000, 10), CurveTerms::kLinear);
  EXPECT_EQ(asked.per_pair_ns, 0);
  EXPECT_GT(asked.fit_error, 0.001);
}

TEST(FitCurve, NeverGivesNegativeCosts) {
  // Time falls with attention here: plain least squares would answer with a negative coefficient.
  std::vector<CostPoint> points = points_of(0, 5000, 30000);
  for (CostPoint& point : points) {
    point.nanoseconds -= 0.5 * point.attention_pairs;
  }
  const CostCurve curve = fit_curve(points, CurveTerms::kAttention);
  EXPECT_EQ(curve.per_pair_ns, 0);
  EXPECT_GT(curve.per_token_ns, 0);
  EXPECT_GE(curve.per_launch_ns, 0);
  EXPECT_GT(curve.fit_error, 0);
}

// The support search against a plain descent on the same objective.
TEST(FitCurve, IsTheOptimumOfItsObjective) {
  Rng random(17);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    std::vector<CostPoint> points = points_of(
        random.uniform(), 5000 * random.uniform(), round % 2 == 0 ? 0 : 1e5 * random.uniform());
    for (CostPoint& point : points) {
      point.nanoseconds *= 0.7 + 0.6 * random.uniform();
    }
    const CostCurve curve = fit_curve(points, CurveTerms::kAttention);
    double longest = 0;
    for (const CostPoint& point : points) {
      longest = std::max(longest, point.nanoseconds);
    }
    const auto objective = [&](double pair, double token, double launch) {
      double sum = 0;
      for (const CostPoint& point : points) {
        const double predicted = pair * point.attention_pairs + token * point.tokens + launch;
        sum += std::pow(predicted - point.nanoseconds, 2) / (point.nanoseconds * longest);
      }
      return sum;
    };
    const double best = objective(curve.per_pair_ns, curve.per_token_ns, curve.per_launch_ns);
    for (const double step : {1e-2, 1e-4}) {
      for (int direction = 0; direction < 27; ++direction) {
        const double pair = curve.per_pair_ns + (direction % 3 - 1) * step;
        const double token = curve.per_token_ns + (direction / 3 % 3 - 1) * step * 5000;
        const double launch = curve.per_launch_ns + (direction / 9 - 1) * step * 1e5;
        if (pair >= 0 && token >= 0 && launch >= 0) {
          EXPECT_GE(objective(pair, token, launch), best - 1e-9);
        }
      }
    }
  }
}

// What profiles of 64 tokens and more look like: the smallest operation takes long for its size,
// the next ones run within the caches. Relative errors would put the large ones 6 to 8 % too low.
TEST(FitCurve, SmallOperationsDoNotBendTheSlopeOfLargeOnes) {
  std::vector<CostPoint> points;
  const std::vector<double> factors = {2, 0.8, 0.9, 0.95, 1, 1, 1, 1};
  double tokens = 64;
  for (const double factor : factors) {
    points.push_back({0, tokens, 1000 * tokens * factor});
    tokens *= 2;
  }
  const CostCurve curve = fit_curve(points, CurveTerms::kLinear);
  for (const double size : {1024.0, 2048.0, 8192.0}) {
    EXPECT_NEAR(predict(curve, 0, size) / (1000 * size), 1, 0.03) << size;
  }
}

TEST(FitCurve, SurvivesTimesOfZero) {
  std::vector<CostPoint> points = points_of(0, 0, 0);
  const CostCurve curve = fit_curve(points, CurveTerms::kAttention);
  EXPECT_EQ(predict(curve, 1e6, 1e3), 0);
  points = points_of(0, 100, 0);
  points.front().nanoseconds = 0;
  for (CostPoint& point : points) {
    point.scale = 200 * point.tokens;
  }
  const CostCurve linear = fit_curve(points, CurveTerms::kLinear);
  EXPECT_NEAR(linear.per_token_ns, 100, 20);
  EXPECT_LT(linear.fit_error, 0.5);
}

}  // namespace
}  // namespace entrain::engine
