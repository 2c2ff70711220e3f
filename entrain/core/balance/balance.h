// Which rank trains which samples in which of its microbatches, for trainers that split the data
// but not the layers of a model: FSDP and DDP. Pipelines are the assigner's.
//
// Read first: BalanceRequest, balance().
#pragma once

#include "entrain/core/balance/request.h"

namespace entrain {

// An assignment with a short step. Every cell has a sample; limits and `everywhere` are kept.
//
// Method  Simulated annealing: moves and swaps out of the slowest ranks' microbatches, mostly with
// a
//         sample of similar length. It begins with the best of several quick assignments
//         (first_assignment.h); where samples are few, with several of them in turn. The same
//         request gives the same assignment everywhere.
// Throws  InvalidInput as check_request() does; NothingFits where a sample exceeds a limit alone,
//         or no place is found for one within the limits.
// Cost    O(samples · cells) for the first assignments, of which many samples try a part, and
//         O(search_steps · (modules + samples of a cell)).
CellOf balance(const BalanceRequest& request);

}  // namespace entrain
