// The cases of a study as tables for people.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/study/summary.h"

namespace entrain {

// Three tables, time, what the time above the bound is made of, and balance, and what a reader must
// know about them. `slots` are those that policies without a choice of their own were tried with;
// empty: all had the plan's.
std::string to_string(const std::vector<CaseSummary>& summaries,
                      const std::vector<std::string>& modules,
                      const std::vector<int>& slots = {});

// What of the gain over `sequential` with `1f1b` (or the first row) is the policy's, what the
// schedule's: each changed alone, under the same plan and memory rule. One line; what the cases do
// not hold is left out, and "" is returned where none fits.
std::string gain_text(const std::vector<CaseSummary>& summaries);

}  // namespace entrain
