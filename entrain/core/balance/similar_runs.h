// Assignments for padded microbatches: every cell is a run of samples of similar lengths, so that
// little is padded.
#pragma once

#include <functional>

#include "entrain/core/balance/request.h"

namespace entrain {

// Calls `found` with such assignments, the same ones for the same request. Limits of tokens and
// samples are kept, limits of bytes but for a cell's first sample; `everywhere` is not looked at.
//
// Cost  O(samples · 400 + 300,000).
void offer_similar_runs(const BalanceRequest& request,
                        const std::function<void(const CellOf&)>& found);

}  // namespace entrain
