// Drift: whether a run's work has left the mixes for which its plan's split of devices was made.
//
// Read first: DriftMonitor. docs/static-plan.md has the proof of its false alarm rate and its
// limits.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "entrain/core/planner/split_region.h"
#include "entrain/core/planner/work_times.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// The mixes that rounding maps to the plan's split, counted in lanes (in the largest unit of
// ranks common to all lanes, if tensor or context parallelism differ between modules). A
// plan that simulation preferred to its neighbours may be outside of its own data's rounding.
//
// Returns  nullopt if modules share a lane: such a plan splits nothing.
std::optional<SplitRegion> plan_region(const Plan& plan);

struct DriftOptions {
  double steps_between_false_alarms = 1e6;  // on average, at least; > 1
  int window = 100;                         // steps that an alarm's shares are taken over, >= 1
};

struct DriftAlarm {
  std::int64_t step = 0;       // observations up to and with the alarm
  int gains = 0;               // module that needs more devices
  int loses = 0;               // module that needs fewer
  std::vector<double> shares;  // [module] of the window's work, in devices
  std::vector<int> asks_for;   // split of the window's work; near the boundary perhaps the plan's
};

// A sequential test for every boundary of the region. With X a step's value of the boundary's
// linear form and σ its standard deviation among batches drawn from the planned work, the step's
// evidence is L = exp(φ(λ X/σ) - λ²/2), φ(x) = ±ln(1 + |x| + x²/2) by x's sign; it gathers as
// R ← (R + 1) · L, R is averaged over λ = 1/8 … 2, and an alarm is given at
// steps_between_false_alarms times the number of boundaries.
//
// Ensures   while steps are independent, E[X] <= 0 on every boundary and their variance is at most
//           σ²: the mean number of steps to a false alarm is at least steps_between_false_alarms,
//           and one comes within T steps with probability at most T / steps_between_false_alarms.
//           Nothing else is assumed of the distribution: tails may be heavy. If planned work varies
//           by less than 0.0005 devices, σ is that much.
// Source    Shiryaev and Roberts' detector on the bounded-influence martingale of Catoni 2012, as
//           in the e-detectors of Shin, Ramdas and Rinaldo 2022.
class DriftMonitor {
 public:
  // Shapes    planned: [module][sample], the work that the plan was made for.
  // Throws    InvalidInput for no samples, a global batch or window below 1, a rate not above 1,
  //           numbers of modules that differ.
  DriftMonitor(SplitRegion region,
               const WorkTimes& planned,
               int global_batch,
               const DriftOptions& options = {});

  // Takes the sums of one step's work. Raises an alarm once; none follows until restart().
  //
  // Shapes    work_ns: [module], each >= 0.
  // Cost      O(boundaries × modules).
  std::optional<DriftAlarm> observe(std::span<const std::int64_t> work_ns);

  // Forgets the evidence and starts again; the window stays.
  void restart();

  [[nodiscard]] const SplitRegion& region() const { return region_; }
  // Whether an alarm was raised since the last start.
  [[nodiscard]] bool left() const { return left_; }
  // [module] of the window's work, in devices; zeros before the first step.
  [[nodiscard]] std::vector<double> shares() const;

 private:
  static constexpr std::array<double, 5> kRates = {0.125, 0.25, 0.5, 1, 2};  // λ

  struct Evidence {
    double deviation = 0;  // σ
    std::array<double, kRates.size()> gathered{};
  };

  void remember(std::span<const std::int64_t> work_ns);

  SplitRegion region_;
  DriftOptions options_;
  std::vector<Evidence> evidence_;                 // [boundary]
  std::vector<std::vector<std::int64_t>> window_;  // [step mod window][module]
  std::vector<std::int64_t> window_sum_;           // [module]
  std::int64_t steps_ = 0;
  bool left_ = false;
};

}  // namespace entrain
