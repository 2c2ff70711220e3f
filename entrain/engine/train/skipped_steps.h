// Steps that end without an update: a sample that cannot be read, a loss that is no number.
//
// Read first: StepSkips. Every rank has one, and all decide alike, since they decide by what they
// have exchanged. A skipped step keeps its place: the next one draws the samples and the learning
// rate it would have drawn anyway; weights, moments and their count of updates stay as they were.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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
  // `skipped`: steps that were skipped before this run began. Requires  comm outlives this object.
  StepSkips(const FaultConfig& config, Comm& comm, std::int64_t skipped);

  // Before a step, on every rank: with on_bad_sample = "skip-step", whether any rank cannot read a
  // sample. Costs one all-reduce of a number; who has nothing to read (paced) passes null.
  std::optional<SkippedStep> before(StepData* data);
  // Behind it: with on_nan = "skip-step", whether a loss or gradient was no number.
  std::optional<SkippedStep> behind(const StepOutcome& outcome);

  // All steps skipped so far, those before the run included.
  [[nodiscard]] std::int64_t skipped() const { return skipped_; }
  // Throws  SystemFailure when more steps in a row were skipped than `faults` allows.
  void check_row(std::int64_t step, const SkippedStep& last) const;

 private:
  [[nodiscard]] std::optional<std::string> first_problem(const std::optional<std::string>& own);
  SkippedStep count(SkippedStep skip);

  FaultConfig config_;
  Comm& comm_;
  std::int64_t skipped_;
  int in_a_row_ = 0;
};

}  // namespace entrain::engine
