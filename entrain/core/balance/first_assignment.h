// Where the search of balance() begins.
#pragma once

#include <cstddef>
#include <vector>

#include "entrain/core/balance/request.h"

namespace entrain {

// The `most` shortest, shortest first, of several quick assignments: longest first where the step
// grows least, runs of similar lengths under padding, the given order and the rivals' (rivals.h).
//
// Requires  a request that check_request() takes; most >= 1. Ensures  limits and `everywhere` are
// kept. Returns   nothing where no attempt keeps them. Cost      O(samples · cells) for the largest
// samples, less for the others of many.
std::vector<CellOf> first_assignments(const BalanceRequest& request, std::size_t most);

}  // namespace entrain
