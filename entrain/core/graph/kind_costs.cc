#include "entrain/core/graph/kind_costs.h"

#include <algorithm>
#include <functional>

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

template <class Operation>
void combine(const GraphUnit& unit, Operation operation, GraphUnit& to) {
  to.forward = operation(to.forward, unit.forward);
  to.backward_input = operation(to.backward_input, unit.backward_input);
  to.backward_weight = operation(to.backward_weight, unit.backward_weight);
  to.split = operation(to.split, unit.split);
  to.activation_bytes = operation(to.activation_bytes, unit.activation_bytes);
  to.output_bytes = operation(to.output_bytes, unit.output_bytes);
  to.recompute.all = operation(to.recompute.all, unit.recompute.all);
  to.recompute.largest = operation(to.recompute.largest, unit.recompute.largest);
}

GraphUnit launch_of(const StageCosts& stage) {
  return {stage.launch.forward.count(),
          stage.launch.backward_input.count(),
          stage.launch.backward_weight.count(),
          stage.launch.split.count(),
          0,
          0};
}

}  // namespace

void add(const GraphUnit& unit, GraphUnit& to) {
  combine(unit, std::plus<>(), to);
}
void subtract(const GraphUnit& unit, GraphUnit& from) {
  combine(unit, std::minus<>(), from);
}

KindCosts::KindCosts(const ModuleCosts& from, std::vector<int>& kind_of_stage)
    : num_stages(static_cast<int>(from.stages.size())),
      first_backward(num_stages),
      first_unit(&from.first_unit),
      work(at(from.first_unit.back()) + from.first_unit.size(), 0) {
  for (std::size_t stage = from.stages.size(); stage > 0; --stage) {
    if (from.stages[stage - 1].trainable) {
      first_backward = static_cast<int>(stage) - 1;
    }
    const OperationTimes& time = from.stages[stage - 1].launch;
    launch_work += (time.forward + time.backward()).count();
  }
  add_up(from, find_kinds(from, kind_of_stage));
}

bool KindCosts::cost_the_same(const StageCosts& a, const StageCosts& b) {
  return launch_of(a) == launch_of(b) && a.chunk_weights == b.chunk_weights &&
         a.key_value_bytes_per_token == b.key_value_bytes_per_token &&
         (a.units.begin() == b.units.begin() ||
          std::equal(a.units.begin(),
                     a.units.end(),
                     b.units.begin(),
                     b.units.end(),
                     [](const UnitCost& x, const UnitCost& y) { return flat(x) == flat(y); }));
}

std::vector<std::int64_t> KindCosts::find_kinds(const ModuleCosts& from,
                                                std::vector<int>& kind_of_stage) {
  std::vector<std::int64_t> result;
  std::vector<const StageCosts*> first;  // [kind] of its stages
  for (const StageCosts& stage : from.stages) {
    std::size_t kind = 0;
    while (kind < kinds.size() && !cost_the_same(stage, *first[kind])) {
      ++kind;
    }
    kind_of_stage.push_back(static_cast<int>(kind));
    if (kind == kinds.size()) {
      kinds.emplace_back(stage.units.begin(), stage.units.size());
      launch.push_back(launch_of(stage));
      first.push_back(&stage);
      result.push_back(0);
    }
    ++result[kind];
  }
  return result;
}

// What units work, and the sums over each sample's units: most samples are in one slot.
void KindCosts::add_up(const ModuleCosts& from, const std::vector<std::int64_t>& num_stages_of) {
  const std::size_t num_units = at(first_unit->back());
  sums.resize((first_unit->size() - 1) * kinds.size());
  std::size_t sample = 0;
  from.for_each_run([&](std::size_t unit, int count) {
    while (unit >= at((*first_unit)[sample + 1])) {
      ++sample;
    }
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      const GraphUnit unit_cost = cost(unit, kind);
      combine(
          unit_cost,
          [count](std::int64_t sum, std::int64_t one) { return sum + count * one; },
          sums[sample * kinds.size() + kind]);
      work[unit] += num_stages_of[kind] *
                    (unit_cost.forward + unit_cost.backward_input + unit_cost.backward_weight);
    }
    std::fill_n(&work[unit] + 1, count - 1, work[unit]);
    work[num_units + sample] += count * work[unit];
  });
}

}  // namespace entrain
