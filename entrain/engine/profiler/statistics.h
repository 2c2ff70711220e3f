// Statistics of repeated measurements.
#pragma once

#include <vector>

namespace entrain::engine {

// Middle value; the mean of both middle ones for an even count.
// Requires  values not empty.
double median(std::vector<double> values);

// Quantile: the value below which `share` of the values are, interpolated linearly.
// Requires  values not empty; share in [0, 1].
double quantile(std::vector<double> values, double share);

// Mean, with every value capped at three medians: the average time including slow moments, without
// single unrelated outliers.
double capped_mean(const std::vector<double>& values);

// (Upper quartile - lower quartile) / median; 0 if the median is 0.
// Requires  values not empty.
double relative_spread(const std::vector<double>& values);

// Number of values above the upper quartile by more than 1.5 times the interquartile range (at
// least 1 % of the median): moments when another program used the machine.
std::vector<char> outliers(const std::vector<double>& values);

}  // namespace entrain::engine
