// One replica's units in slots, with their loads and the slots they may move to.
// For balance_slots().
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/placement.h"

namespace entrain {

// The loads to balance, for all samples of the step.
struct BalanceTimes {
  std::vector<std::vector<std::int64_t>> unit;  // [module][unit] forward time in nanoseconds
  std::vector<std::vector<int>> sample_of;      // [module][unit]
  std::vector<double> level;                    // [module] the target of an ordinary slot

  // Forward time of a sample in a module, units above the level counted as the level, in levels; 0
  // for a module without work.
  [[nodiscard]] double counted(const StepCosts& costs, int module, int sample) const;
};

// Slots that a unit may use, both ends included.
struct SlotRange {
  int begin = 0;
  int last = 0;
  [[nodiscard]] bool holds(int slot) const { return begin <= slot && slot <= last; }
};

// Starts empty; every change is also made in the placement.
class SlotLoads {
 public:
  // All arguments must outlive the object. max_deferral as in PlanLimits.
  SlotLoads(const StepCosts& costs,
            const BalanceTimes& times,
            int replica,
            int max_deferral,
            Placement& placement);

  [[nodiscard]] int llm() const { return llm_; }
  [[nodiscard]] int num_slots() const { return num_slots_; }
  [[nodiscard]] int max_deferral() const { return max_deferral_; }  // num_slots() for any
  [[nodiscard]] const std::vector<int>& samples() const { return samples_; }
  [[nodiscard]] int first_unit(int module, int sample) const {
    return costs_.modules[index(module)].first_unit[index(sample)];
  }
  [[nodiscard]] int sample_of(int module, int unit) const {
    return times_.sample_of[index(module)][index(unit)];
  }
  [[nodiscard]] std::int64_t time_of(int module, int unit) const {
    return times_.unit[index(module)][index(unit)];
  }
  [[nodiscard]] std::int64_t time_of_sample(int module, int sample) const;
  [[nodiscard]] double counted(int module, int sample) const {
    return times_.counted(costs_, module, sample);
  }
  // In levels of the module; 0 for a module without work.
  [[nodiscard]] double in_levels(int module, std::int64_t time) const;

  [[nodiscard]] int slot_of(int module, int unit) const;
  [[nodiscard]] std::int64_t load(int module, int slot) const {
    return load_[index(module)][index(slot)];
  }
  [[nodiscard]] const std::vector<int>& members(int module, int slot) const {
    return members_[index(module)][index(slot)];
  }
  // Recounts the units of the slot after changes.
  [[nodiscard]] int version(int module, int slot) const {
    return version_[index(module)][index(slot)];
  }
  // Sum over modules and slots of squared loads in levels.
  [[nodiscard]] double score() const;

  // Slots that the sample's LLM work may use, given its segments.
  [[nodiscard]] SlotRange llm_range(int sample) const;
  // Slots that a unit may use, given the others; any for segments while the LLM is not placed.
  [[nodiscard]] SlotRange range_of(int module, int unit, bool llm_placed) const;
  // The slot of all segments; -1 if they are in several, or if there is none.
  [[nodiscard]] int encoder_slot(int sample) const;

  void clear();
  void put(int module, int unit, int slot);
  void put_sample(int sample, int slot);
  void move(int module, int unit, int to);
  // Reads the placement again.
  void reload();

 private:
  static std::size_t index(int value) { return static_cast<std::size_t>(value); }

  const StepCosts& costs_;
  const BalanceTimes& times_;
  int llm_;
  int num_slots_;
  int max_deferral_;
  const std::vector<int>& samples_;
  Placement& placement_;
  std::vector<std::vector<std::int64_t>> load_;         // [module][slot]
  std::vector<std::vector<std::vector<int>>> members_;  // [module][slot] units
  std::vector<std::vector<int>> version_;               // [module][slot]
};

}  // namespace entrain
