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
  add_units(from, kind_of_stage);
  add_samples();
}

bool KindCosts::cost_the_same(const StageCosts& a, const StageCosts& b) {
  return launch_of(a) == launch_of(b) &&
         std::equal(a.units.begin(),
                    a.units.end(),
                    b.units.begin(),
                    b.units.end(),
                    [](const UnitCost& x, const UnitCost& y) { return flat(x) == flat(y); });
}

void KindCosts::add_units(const ModuleCosts& from, std::vector<int>& kind_of_stage) {
  std::vector<std::int64_t> times;  // [kind] stages of it
  for (const StageCosts& stage : from.stages) {
    const auto like = std::find_if(kinds.begin(), kinds.end(), [&](const StageCosts* other) {
      return cost_the_same(*other, stage);
    });
    const auto kind = static_cast<std::size_t>(like - kinds.begin());
    kind_of_stage.push_back(static_cast<int>(kind));
    if (like == kinds.end()) {
      kinds.push_back(&stage);
      times.push_back(0);
      launch.push_back(launch_of(stage));
    }
    ++times[kind];
  }
  for (std::size_t kind = 0; kind < times.size(); ++kind) {
    const std::vector<UnitCost>& units = kinds[kind]->units;
    for (std::size_t unit = 0; unit < at(from.first_unit.back()); ++unit) {
      const OperationTimes& time = units[unit].time;
      work[unit] += times[kind] * (time.forward + time.backward()).count();
    }
  }
}

// The sums over each sample's units: most samples are in one slot.
void KindCosts::add_samples() {
  const std::vector<int>& first = *first_unit;
  const std::size_t num_kinds = kinds.size();
  sums.resize((first.size() - 1) * num_kinds);
  for (std::size_t sample = 0; sample + 1 < first.size(); ++sample) {
    for (std::size_t unit = at(first[sample]); unit < at(first[sample + 1]); ++unit) {
      for (std::size_t kind = 0; kind < num_kinds; ++kind) {
        add(cost(unit, kind), sums[sample * num_kinds + kind]);
      }
      work[at(first.back()) + sample] += work[unit];
    }
  }
}

}  // namespace entrain
