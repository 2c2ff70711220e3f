// The best split of two slots' work, by trying every combination of a few choices.
#pragma once

#include <vector>

namespace entrain {

// Something that may lie in either of two slots. Option 0 is where it lies now.
struct SplitItem {
  int num_options = 1;
  std::vector<double> change;  // [option][dimension]: of (load of one slot - load of the other);
                               // zeros for option 0
};

// One option for each item, such that Σ over dimensions of the squared difference is least; of
// equals the first in lexicographic order. All zeros where nothing improves the sum by
// `least_gain`.
//
// Shapes    difference: [dimension], as things lie now; result: [item].
// Cost      O(product of the options × dimensions).
std::vector<int> best_split(const std::vector<SplitItem>& items,
                            const std::vector<double>& difference,
                            double least_gain);

// Keeps as many of the first items as can be tried within `combinations`.
// Returns  the number of combinations of those that stay.
int keep_affordable(std::vector<SplitItem>& items, int combinations);

}  // namespace entrain
