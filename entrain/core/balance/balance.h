// Which rank trains which samples in which of its microbatches, for trainers that split the data
// but not the layers of a model: FSDP and DDP. Pipelines are the assigner's.
//
// Read first: BalanceRequest, balance().
#pragma once

#include "entrain/core/balance/request.h"

namespace entrain {

// An assignment with a short step. Every cell has a sample; limits and `everywhere` are kept.
//
// Method  Small samples first where a cell must have one, then longest first, each where the step
//         grows least; then moves and swaps out of the slowest ranks' microbatches (simulated
//         annealing). The same request gives the same assignment everywhere.
// Throws  InvalidInput as check_request() does; NothingFits where a sample exceeds a limit alone,
//         or no place is found for one within the limits.
// Cost    O(samples · cells · modules + search_steps · (modules + samples of a cell)).
CellOf balance(const BalanceRequest& request);

}  // namespace entrain
