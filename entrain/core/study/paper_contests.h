// Who meets in a study of the paper, under which plan, and the rows of what comes of it. Internal
// to its cells.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/study/cases.h"
#include "entrain/core/study/study.h"

namespace entrain {

inline constexpr int kOneSampleDraws = 59;  // of plans from one sample

struct Contest {
  std::string planner;
  Plan plan;
  std::vector<std::string> policies;
  std::vector<std::string> schedules;
  bool tries_slots = false;  // rivals run with their best number of slots
};

// Appends a row for each case: its summary, planner and memory, and of the first step the spread
// over replicas and the peaks of lanes.
void add_rows(const CasesRequest& request,
              const std::vector<CaseResult>& cases,
              const std::string& planner,
              const std::string& memory,
              Json& rows);

// The rows of all contests with each kind of memory, over fewer steps if `quick`; `second` is the
// study of the second seed.
Json contest_rows(bool quick,
                  int threads,
                  const Study& first,
                  const Study& second,
                  const std::vector<Contest>& contests);

}  // namespace entrain
