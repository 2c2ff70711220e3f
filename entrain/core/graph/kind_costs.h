// A module's costs on flat arrays, by kind of stage: stages of equal layers cost the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/step_graph.h"

namespace entrain {

// Adds all but messages: a sum's transfer_ns is not the sum of its units'.
void add(const GraphUnit& unit, GraphUnit& to);
void subtract(const GraphUnit& unit, GraphUnit& from);

// Without launch constants, unless said otherwise. A *number* is that of a unit, or, behind the
// units, that of a sample: the sum over its units, as most samples are in one slot.
struct KindCosts {
  // Appends the kinds of the module's stages to `kind_of_stage`. `from` must outlive the result.
  // Cost  O(units × stages).
  KindCosts(const ModuleCosts& from, std::vector<int>& kind_of_stage);

  [[nodiscard]] GraphUnit cost(std::size_t number, std::size_t kind) const {
    const std::size_t num_units = static_cast<std::size_t>(first_unit->back());
    return number < num_units ? flat(kinds[kind][number])
                              : sums[(number - num_units) * kinds.size() + kind];
  }

  int num_stages = 0;
  int first_backward = 0;                        // by its own trainable stages; num_stages if none
  const std::vector<int>* first_unit = nullptr;  // [sample + 1]
  std::vector<std::span<const UnitCost>> kinds;  // the units of a stage of each
  std::vector<GraphUnit> sums;                   // [sample × kinds + kind]
  std::vector<GraphUnit> launch;                 // [kind] launch constants
  std::vector<std::int64_t> work;  // [number] nanoseconds forward and backward over all stages
  std::int64_t launch_work = 0;    // likewise of the launch constants

 private:
  [[nodiscard]] static GraphUnit flat(const UnitCost& cost) {
    return {cost.time.forward.count(),
            cost.time.backward_input.count(),
            cost.time.backward_weight.count(),
            cost.time.split.count(),
            cost.activation_bytes,
            cost.output_bytes,
            0,
            cost.recompute};
  }
  [[nodiscard]] static bool cost_the_same(const StageCosts& a, const StageCosts& b);
  // Returns the stages of each kind.
  std::vector<std::int64_t> find_kinds(const ModuleCosts& from, std::vector<int>& kind_of_stage);
  void add_up(const ModuleCosts& from, const std::vector<std::int64_t>& num_stages_of);
};

}  // namespace entrain
