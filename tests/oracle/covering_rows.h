// Few combinations of many factors in which all pairs of values come together.
#pragma once

#include <functional>
#include <vector>

#include "entrain/core/base/random.h"

namespace entrain::oracle {

// Rows of one value for each factor, 0 … sizes[factor] - 1: every two values of two factors stand
// together in one of them, unless no row of 200 drawn ones that have both is `allowed`. Greedy, so
// not the fewest.
std::vector<std::vector<int>> covering_rows(
    const std::vector<int>& sizes,
    const std::function<bool(const std::vector<int>&)>& allowed,
    Rng& rng);

}  // namespace entrain::oracle
