// Steps that add nothing to an update: a sample that cannot be read, a loss that is no number.
//
// Read first: StepSkips. Every rank has one, and all decide alike, since they decide by what they
// have exchanged. A skipped step keeps its place: the next one draws the samples and the learning
// rate it would have drawn anyway. Where no update is made, weights, moments and their count of
// updates stay as they were.
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
  std::string cause;   // "bad-sample" or "nan", as metrics.jsonl has it
  std::string detail;  // which sample and file; may be empty
};

class StepSkips {
 public:
  // `before`: what was skipped before this run began. Requires  comm outlives this object.
  StepSkips(const FaultConfig& config, Comm& comm, const SkipCounts& before);

  // Before a step, on every rank: with on_bad_sample = "skip-step", whether any rank cannot read a
  // sample. Costs one all-reduce of a number; who has nothing to read (paced) passes null.
  std::optional<SkippedStep> before(StepData* data);
  // Behind it, on every rank: with on_nan = "skip-step", whether a loss was no number, or where the
  // step ends an update a gradient. Costs one all-reduce of a number where it does not.
  std::optional<SkippedStep> behind(const StepOutcome& outcome, bool ends_update);

  // Counts a step, and the update where it is the last of one.
  void count(bool skipped, bool ends_update, bool updated);
  // All so far, those before the run included.
  [[nodiscard]] const SkipCounts& counts() const { return counts_; }
  // Throws  SystemFailure when more steps were skipped since the last update than `faults` allows.
  void check_row(std::int64_t step, const SkippedStep& last) const;

 private:
  [[nodiscard]] std::optional<std::string> first_problem(const std::optional<std::string>& own);

  FaultConfig config_;
  Comm& comm_;
  SkipCounts counts_;
  int in_a_row_ = 0;  // since the last update
};

}  // namespace entrain::engine
