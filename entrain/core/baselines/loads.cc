#include "entrain/core/baselines/loads.h"

#include <algorithm>
#include <numeric>

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

// Work of every module on every lane, summed over the batch.
std::vector<std::vector<std::int64_t>> lane_totals(const Plan& plan, const StepCosts& costs) {
  std::vector<std::vector<std::int64_t>> totals(costs.modules.size(),
                                                std::vector<std::int64_t>(plan.lanes.size(), 0));
  for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
    for (const StageRef& ref : plan.lanes[lane]) {
      for (const UnitCost& unit : costs.modules[at(ref.module)].stages[at(ref.stage)].units) {
        totals[at(ref.module)][lane] += (unit.time.forward + unit.time.backward()).count();
      }
    }
  }
  return totals;
}

std::vector<int> heaviest_lanes(const Plan& plan, const StepCosts& costs) {
  const auto totals = lane_totals(plan, costs);
  std::vector<std::pair<std::int64_t, int>> heaviest;  // (work, lane) of each module
  for (const std::vector<std::int64_t>& lanes : totals) {
    const auto largest = std::max_element(lanes.begin(), lanes.end());
    heaviest.emplace_back(-*largest, static_cast<int>(largest - lanes.begin()));
  }
  std::sort(heaviest.begin(), heaviest.end());
  std::vector<int> result;
  for (const auto& [work, lane] : heaviest) {
    if (work < 0 && std::find(result.begin(), result.end(), lane) == result.end() &&
        result.size() < kLoadDimensions) {
      result.push_back(lane);
    }
  }
  if (result.empty()) {
    result.push_back(0);
  }
  return result;
}

void add(Load& load, const Load& other) {
  for (std::size_t d = 0; d < load.size(); ++d) {
    load[d] += other[d];
  }
}

}  // namespace

BatchLoads batch_loads(const Plan& plan, const StepCosts& costs) {
  BatchLoads result;
  result.lanes = heaviest_lanes(plan, costs);
  const int llm = costs.llm_module();
  const auto unit_load = [&](int module, int unit) {
    Load load{};
    for (std::size_t d = 0; d < result.lanes.size(); ++d) {
      load[d] = static_cast<double>(
          lane_time(costs, plan.lanes[at(result.lanes[d])], module, unit).count());
    }
    return load;
  };
  result.sample.resize(at(costs.num_samples));
  result.text_only.assign(at(costs.num_samples), 1);
  for (int module = 0; module <= llm; ++module) {
    const std::vector<int>& first = costs.modules[at(module)].first_unit;
    std::vector<Load>& loads = module == llm ? result.llm : result.unit.emplace_back();
    loads.reserve(at(first.back()));
    for (int sample = 0; sample < costs.num_samples; ++sample) {
      for (int unit = first[at(sample)]; unit < first[at(sample + 1)]; ++unit) {
        loads.push_back(unit_load(module, unit));
        add(result.sample[at(sample)], loads.back());
        result.text_only[at(sample)] =
            static_cast<char>(result.text_only[at(sample)] != 0 && module == llm);
      }
    }
  }
  for (const Load& load : result.sample) {
    add(result.total, load);
  }
  for (const Load& load : result.sample) {
    double largest = 0;
    for (std::size_t d = 0; d < load.size(); ++d) {
      largest = result.total[d] > 0 ? std::max(largest, load[d] / result.total[d]) : largest;
    }
    result.normalised.push_back(static_cast<std::int64_t>(largest * 1e12));
  }
  result.descending.resize(at(costs.num_samples));
  std::iota(result.descending.begin(), result.descending.end(), 0);
  std::stable_sort(result.descending.begin(), result.descending.end(), [&](int a, int b) {
    return result.normalised[at(a)] > result.normalised[at(b)];
  });
  return result;
}

}  // namespace entrain
