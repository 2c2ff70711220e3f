// The cases of a study summed up over steps: as tables for people, as JSON, and as CSV for further
// study.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/study/cases.h"

namespace entrain {

// Medians over steps; the first four of means over replicas (ModuleBalance).
struct ModuleSummary {
  double cv = 0;             // of forward times over a replica's slots
  double floor_cv = 0;       // the least that its indivisible units allow in its slots
  double max_over_mean = 0;  // of forward times over a replica's slots
  double std_s = 0;          // likewise
  double replica_cv = 0;     // of forward times over replicas
  double replica_max_over_mean = 0;
};

// Medians over the steps that were not refused, where not said otherwise.
struct CaseSummary {
  std::string policy;
  std::string schedule;
  std::int64_t steps = 0;
  std::int64_t refused = 0;  // steps for which nothing fits
  std::string reason;        // of the first of them
  double step_s = 0;
  double step_p95_s = 0;
  double step_mean_s = 0;
  double vs_best = 0;  // step_s over the least one of cases that fit on every step, or of all
  double lower_bound_s = 0;
  double gap = 0;  // of each step's own gap
  // Mean over steps, as shares of the bound: their sum less `in_bound` is the mean gap. Empty where
  // no step has them.
  std::vector<double> causes;  // [GapCause]
  double in_bound = 0;
  double reduction = 0;  // of gradients, on the lane that takes longest, likewise
  double bubble = 0;
  double num_slots = 0;  // mean over replicas and steps
  int given_slots = 0;   // to the policy; 0: it chose its own
  double deferred = 0;   // mean over steps
  double chunks = 0;     // likewise
  std::vector<ModuleSummary> modules;
  std::vector<int> balance_slots;  // what numbers of slots replicas have there, rising
  bool equal_slots = true;         // whether balance is at the plan's number of slots on every step
  std::int64_t peak_bytes = 0;     // largest
  std::int64_t over_bytes = 0;     // largest
  std::string over;                // where, in words
  double assign_ms = 0;

  [[nodiscard]] bool has_result() const { return refused < steps; }
  [[nodiscard]] bool fits() const { return refused == 0 && over_bytes == 0; }
};

// Shapes  result: as `cases`.
std::vector<CaseSummary> summarise(const std::vector<CaseResult>& cases);

Json to_json(const CaseSummary& summary, const std::vector<std::string>& modules);

// Of each step, as a report's view has it: lists of equal length by name (`step`,
// `predicted_step_s`, `lower_bound_s`, `llm_tokens_per_s`, `samples_per_s`, `bubble`, `deferred`);
// null where the step was refused. `first_step`: of result.steps.
Json curves_of(const CaseResult& result, std::int64_t first_step);

// A header, then one line per case and step. A refused step has empty figures and its reason.
// Columns: policy, schedule, step, step_s, lower_bound_s, gap, bubble, num_slots (`;` between
// replicas), deferred, chunks, per module <m>_cv, <m>_floor_cv, <m>_max_over_mean, <m>_std_s (means
// over replicas), <m>_cvs, <m>_stds_s (`;` between replicas), <m>_replica_cv,
// <m>_replica_max_over_mean, then balance_slots (`;` between replicas), equal_slots, peak_bytes,
// over_bytes, gap_fill_s and so on per GapCause, gap_in_bound_s, assign_ms, reason.
std::string cases_csv(const std::vector<CaseResult>& cases,
                      const std::vector<std::string>& modules);

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
