// Drift during a run: whether the steps' work still fits the plan's split of lanes.
//
// Read first: DriftWatch. The test, its false alarm rate and its limits are in drift.h and
// docs/static-plan.md; this file defines what a run compares and reports.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "entrain/core/planner/drift.h"

#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

struct DriftState {
  std::vector<double> shares;  // [module] of the last steps' work, in lanes
  bool left = false;           // the alarm was raised
  std::string warning;         // one line, at the step of the alarm
};

class DriftWatch {
 public:
  // Watches the plan's split over the work that the plan was made for (RunSetup::planned, else the
  // training data).
  //
  // Returns  nullopt if there is nothing to watch: no profile for the run, modules that
  //          share lanes, or all modules on one lane.
  static std::optional<DriftWatch> of(const RunSetup& setup);

  // Observes one step's global batch; steps must be in rising order. Warns once per run.
  DriftState observe(const StepCosts& costs);

  // What is not watched, printed at the start of a run; empty if everything is.
  //
  // A plan chosen by simulation may be outside the region that rounding gives for its own data.
  // Such a boundary cannot show drift, so it is not watched; this line says so.
  [[nodiscard]] const std::string& note() const { return note_; }

 private:
  DriftWatch(const RunSetup& setup, DriftMonitor monitor, std::string note);

  [[nodiscard]] std::string describe(const DriftAlarm& alarm) const;
  [[nodiscard]] int steps_outside(const DriftAlarm& alarm) const;

  DriftMonitor monitor_;
  std::deque<std::vector<std::int64_t>> recent_;  // [module] work of the last steps, newest last
  std::vector<std::string> names_;                // [module]
  std::string remedy_;                            // the command that makes a new plan
  std::string note_;
};

// The shares of module `gains`, in devices, for which its boundaries with `loses` keep the split
// while the other modules' shares stay at `shares`: [least, most].
//
// From the condition of split_region(): with e the shares and g the split,
// |(e_i - g_i) - (e_j - g_j)| <= 1, where a module with one device cannot lose any.
struct ShareRange {
  double least = 0;
  double most = 0;
};
ShareRange share_range(const std::vector<int>& split,
                       const std::vector<double>& shares,
                       int gains,
                       int loses);

}  // namespace entrain::engine
