// What of a gain is the policy's and what the schedule's.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/study/summary.h"

namespace entrain {

// What of the gain over `sequential` with `1f1b` (or the first row) is the policy's, what the
// schedule's: each changed alone, under the same plan and memory rule. One line; what the cases do
// not hold is left out, and "" is returned where none fits.
std::string gain_text(const std::vector<CaseSummary>& summaries);

}  // namespace entrain
