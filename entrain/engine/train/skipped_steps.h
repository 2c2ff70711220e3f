// Steps that add nothing to an update: an unreadable sample, or a loss that is not finite.
//
// Read first: StepSkips. Every rank has one, and all decide alike, because they decide from
// exchanged values. A skipped step keeps its number: the next one draws the samples and the
// learning rate it would have had anyway. Without an update, weights, moments and their update
// count are unchanged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "entrain/engine/checkpoint/manifest.h"
#include "entrain/engine/comm/comm.h"
#include "entrain/engine/data/step_data.h"
#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/train/run_config.h"

namespace entrain::engine {

struct SkippedStep {
  std::string cause;   // "bad-sample" or "nan", as in metrics.jsonl
  std::string detail;  // which sample and file; may be empty
};

class StepSkips {
 public:
  // `before`: steps skipped before this run began. Requires  comm outlives this object.
  StepSkips(const FaultConfig& config, Comm& comm, const SkipCounts& before);

  // Before a step, on every rank: with on_bad_sample = "skip-step", whether any rank has an
  // unreadable sample. Costs one all-reduce of a number; ranks with nothing to read (paced) pass
  // null.
  std::optional<SkippedStep> before(StepData* data);
  // After it, on every rank: with on_nan = "skip-step", whether a loss or, if the step ends an
  // update, a gradient was not finite. Costs one all-reduce of a number if it does not end one.
  std::optional<SkippedStep> behind(const StepOutcome& outcome, bool ends_update);

  // Counts a step, and the update if the step ends one.
  void count(bool skipped, bool ends_update, bool updated);
  // All so far, including those before the run.
  [[nodiscard]] const SkipCounts& counts() const { return counts_; }
  // Throws  SystemFailure if more steps were skipped since the last update than `faults` allows.
  void check_row(std::int64_t step, const SkippedStep& last) const;

 private:
  [[nodiscard]] std::optional<std::string> first_problem(const std::optional<std::string>& own);

  FaultConfig config_;
  Comm& comm_;
  SkipCounts counts_;
  int in_a_row_ = 0;  // since the last update
};

}  // namespace entrain::engine
