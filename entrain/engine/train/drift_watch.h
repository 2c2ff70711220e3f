// Drift during a run: whether the steps' work still asks for the split of lanes that the plan has.
//
// Read first: DriftWatch. The test, its false alarm rate and its limits are drift.h's and
// docs/static-plan.md's; here is what a run compares with what, and what it says about it.
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
  bool left = false;           // the alarm has been given
  std::string warning;         // one line, at the step of the alarm
};

class DriftWatch {
 public:
  // Watches the plan's split over the work that the plan was made for (RunSetup::planned, else the
  // training data).
  //
  // Returns  nullopt where there is nothing to leave: no profile of the run's own, modules that
  //          share lanes, or every module on one lane.
  static std::optional<DriftWatch> of(const RunSetup& setup);

  // Takes one step's global batch, steps in rising order. The warning comes once a run.
  DriftState observe(const StepCosts& costs);

  // What is not watched, for the start of a run; empty where all is.
  //
  // A plan chosen by simulation may lie outside of what rounding gives for its own data. Beyond
  // such a boundary nothing is drift, so it is left out, with this line.
  [[nodiscard]] const std::string& note() const { return note_; }

 private:
  DriftWatch(const RunSetup& setup, DriftMonitor monitor, std::string note);

  [[nodiscard]] std::string describe(const DriftAlarm& alarm) const;
  [[nodiscard]] int steps_outside(const DriftAlarm& alarm) const;

  DriftMonitor monitor_;
  std::deque<std::vector<std::int64_t>> recent_;  // [module] work of the last steps, newest last
  std::vector<std::string> names_;                // [module]
  std::string remedy_;                            // the command that plans anew
  std::string note_;
};

// The shares of module `gains`, in devices, for which its boundaries with `loses` keep the split
// while the other modules stay at `shares`: [least, most].
//
// From the condition of split_region(): with e the shares and g the split,
// |(e_i - g_i) - (e_j - g_j)| <= 1, where a module with one device loses none.
struct ShareRange {
  double least = 0;
  double most = 0;
};
ShareRange share_range(const std::vector<int>& split,
                       const std::vector<double>& shares,
                       int gains,
                       int loses);

}  // namespace entrain::engine
