// The batch size from which a split is proven to stay: explicit bounds for linear forms of batches.
//
// Read first: proven_stable_batch(). docs/static-plan.md has the statement and its proof.
#pragma once

#include <cstdint>
#include <span>

#include "entrain/core/planner/split_region.h"
#include "entrain/core/planner/work_times.h"

namespace entrain {

// A boundary's linear form over single samples, each equally likely.
struct FormMoments {
  double mean = 0;
  double variance = 0;   // of the population
  double most_over = 0;  // greatest value above the mean, >= 0
};

// Requires  at least one sample; as many modules as the boundary has coefficients.
// Cost      O(samples × modules).
FormMoments form_moments(const SplitBoundary& boundary, const WorkTimes& work_ns);

// Upper bound of the probability that the form of a batch of n samples exceeds 0: the smaller of
// Cantelli's σ² / (σ² + n μ²) and Bernstein's exp(-n μ² / (2 σ² + 2/3 M |μ|)), M the greatest value
// above the mean; 0 if no sample's value reaches 0, 1 if the mean is not below 0. Falls as n rises.
//
// Source  Cantelli 1928; Bernstein 1924 in the form of Boucheron, Lugosi and Massart 2013, §2.8;
//         without replacement by Hoeffding 1963, §6.
double crossing_bound(const FormMoments& moments, double batch);

// The least n such that a batch of n samples, and one of any greater number, needs another split
// with probability at most `error`, by the sum of crossing_bound() over the region's boundaries.
// Unlike a certificate by draws it always holds for batches drawn from these samples, with or
// without replacement; but it is a bound: much smaller batches may be stable as well.
//
// Requires  0 < error < 1.
// Returns   0 if no size is proven: the samples' own mix is on a boundary or outside.
// Cost      O(samples × boundaries).
std::int64_t proven_stable_batch(const SplitRegion& region, const WorkTimes& work_ns, double error);

}  // namespace entrain
