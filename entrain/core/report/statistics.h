// Statistics over steps, slots and replicas, for reports.
#pragma once

#include <span>
#include <vector>

namespace entrain {

// The middle value, the mean of both middle ones for an even count; 0 for none.
double median(std::vector<double> values);

// The smallest value that `share` of all values do not exceed (nearest rank); 0 for none.
// Requires  0 < share <= 1.
double percentile(std::vector<double> values, double share);

struct Spread {
  double mean = 0;
  double std = 0;            // of the population
  double cv = 0;             // std / mean; 0 for a mean of 0
  double max_over_mean = 0;  // likewise
};
Spread spread_of(std::span<const double> values);

}  // namespace entrain
