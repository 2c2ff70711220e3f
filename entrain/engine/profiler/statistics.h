// What repeated measurements of one thing say.
#pragma once

#include <vector>

namespace entrain::engine {

// Middle value; the mean of both middle ones for an even count.
// Requires  values not empty.
double median(std::vector<double> values);

// Value below which a share of the others lies, between neighbours in proportion.
// Requires  values not empty; share in [0, 1].
double quantile(std::vector<double> values, double share);

// Mean, no value counted above three medians: what one of many takes on average, slow moments
// among them, whatever a single one that has nothing to do with it took.
// Requires  values not empty, >= 0.
double capped_mean(const std::vector<double>& values);

// (Upper quartile - lower quartile) / median; 0 where the median is.
// Requires  values not empty.
double relative_spread(const std::vector<double>& values);

// Values above the upper quartile by more than 1.5 times the distance of the quartiles (at least
// 1 % of the median): moments when something else had the machine.
std::vector<char> outliers(const std::vector<double>& values);

}  // namespace entrain::engine
