// The best split of two slots' work, by trying every combination of a few choices.
#pragma once

#include <vector>

namespace entrain {

// A unit that may be in either of two slots. Option 0 is its current slot.
struct SplitItem {
  int num_options = 1;
  std::vector<double> change;  // [option][dimension]: of (load of one slot - load of the other);
                               // zeros for option 0
};

// One option for each item, such that Σ over dimensions of the squared difference is least; of
// equals the first in lexicographic order. All zeros if nothing improves the sum by
// `least_gain`.
//
// Shapes    difference: [dimension], with the current options; result: [item].
// Cost      O(product of the options × dimensions).
std::vector<int> best_split(const std::vector<SplitItem>& items,
                            const std::vector<double>& difference,
                            double least_gain);

// Keeps as many of the first items as `combinations` allows.
// Returns  the number of combinations of those kept.
int keep_affordable(std::vector<SplitItem>& items, int combinations);

}  // namespace entrain
