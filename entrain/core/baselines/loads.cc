#include "entrain/core/baselines/loads.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

// Work of every stage of a module, summed over the batch.
std::vector<std::int64_t> stage_totals(const ModuleCosts& module) {
  std::vector<std::int64_t> totals;
  for (const StageCosts& stage : module.stages) {
    const auto like =
        std::find_if(module.stages.begin(), module.stages.end(), [&](const StageCosts& other) {
          return other.units.begin() == stage.units.begin();
        });
    const auto earlier = static_cast<std::size_t>(like - module.stages.begin());
    if (earlier < totals.size()) {
      totals.push_back(totals[earlier]);
      continue;
    }
    std::int64_t& total = totals.emplace_back(0);
    module.for_each_run([&](std::size_t unit, int count) {
      const OperationTimes& time = stage.units[unit].time;
      total += count * (time.forward + time.backward()).count();
    });
  }
  return totals;
}

// [module][lane]
std::vector<std::vector<std::int64_t>> lane_totals(const Plan& plan, const StepCosts& costs) {
  std::vector<std::vector<std::int64_t>> totals(costs.modules.size(),
                                                std::vector<std::int64_t>(plan.lanes.size(), 0));
  std::vector<std::vector<std::int64_t>> of_stages;
  for (const ModuleCosts& module : costs.modules) {
    of_stages.push_back(stage_totals(module));
  }
  for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
    for (const StageRef& ref : plan.lanes[lane]) {
      totals[at(ref.module)][lane] += of_stages[at(ref.module)][at(ref.stage)];
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

// [unit] loads of a module's units on `lanes`.
std::vector<Load> unit_loads(const Plan& plan,
                             const StepCosts& costs,
                             int module,
                             const std::vector<int>& lanes) {
  const ModuleCosts& of = costs.modules[at(module)];
  std::vector<Load> result(at(of.first_unit.back()));  // of a run's first unit, then of the others
  for (std::size_t d = 0; d < lanes.size(); ++d) {
    for (const StageRef& ref : plan.lanes[at(lanes[d])]) {
      if (ref.module == module) {
        const SharedVector<UnitCost>& units = of.stages[at(ref.stage)].units;
        of.for_each_run([&](std::size_t unit, int) {
          const OperationTimes& time = units[unit].time;
          result[unit][d] += static_cast<double>((time.forward + time.backward()).count());
        });
      }
    }
  }
  of.for_each_run([&](std::size_t unit, int count) {
    std::fill_n(&result[unit] + 1, count - 1, result[unit]);
  });
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
  result.sample.resize(at(costs.num_samples));
  result.text_only.assign(at(costs.num_samples), 1);
  for (int module = 0; module <= llm; ++module) {
    const std::vector<int>& first = costs.modules[at(module)].first_unit;
    std::vector<Load> loads = unit_loads(plan, costs, module, result.lanes);
    for (int sample = 0; sample < costs.num_samples; ++sample) {
      for (int unit = first[at(sample)]; unit < first[at(sample + 1)]; ++unit) {
        add(result.sample[at(sample)], loads[at(unit)]);
      }
      const bool has_units = first[at(sample)] < first[at(sample + 1)];
      result.text_only[at(sample)] &= static_cast<char>(module == llm || !has_units);
    }
    (module == llm ? result.llm : result.unit.emplace_back()) = std::move(loads);
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

// An empty bin comes before all others: none of them gets less, and it has the fewest loads.
int LoadBins::add(const Load& load) {
  const std::size_t best = num_filled_ < bins_.size() ? num_filled_++ : least_with(load);
  entrain::add(bins_[best].load, load);
  ++bins_[best].count;
  find_least(best / kBlock);
  return static_cast<int>(best);
}

// A block's least loads come before all of its bins: sums and divisions of less are no larger. The
// first of them is looked into first, and then few others.
std::size_t LoadBins::least_with(const Load& load) {
  using Key = std::tuple<double, int, std::size_t>;  // largest dimension, loads before, number
  for (std::size_t block = 0; block < least_.size(); ++block) {
    bounds_[block] = largest_with(least_[block], load);
  }
  Key best{std::numeric_limits<double>::infinity(), 0, 0};
  const auto look_into = [&](std::size_t block) {
    const std::size_t end = std::min(bins_.size(), (block + 1) * kBlock);
    for (std::size_t bin = block * kBlock; bin < end; ++bin) {
      best = std::min(best, Key{largest_with(bins_[bin], load), bins_[bin].count, bin});
    }
  };
  const auto first =
      static_cast<std::size_t>(std::min_element(bounds_.begin(), bounds_.end()) - bounds_.begin());
  look_into(first);
  for (std::size_t block = 0; block < least_.size(); ++block) {
    if (block != first && Key{bounds_[block], least_[block].count, block * kBlock} < best) {
      look_into(block);
    }
  }
  return std::get<2>(best);
}

void LoadBins::find_least(std::size_t block) {
  Bin least = bins_[block * kBlock];
  const std::size_t end = std::min(bins_.size(), (block + 1) * kBlock);
  for (std::size_t bin = block * kBlock + 1; bin < end; ++bin) {
    for (std::size_t d = 0; d < least.load.size(); ++d) {
      least.load[d] = std::min(least.load[d], bins_[bin].load[d]);
    }
    least.count = std::min(least.count, bins_[bin].count);
  }
  least_[block] = least;
}

double LoadBins::largest_with(const Bin& bin, const Load& load) const {
  double largest = 0;
  for (std::size_t d = 0; d < load.size(); ++d) {
    if (scale_[d] > 0) {
      largest = std::max(largest, (bin.load[d] + load[d]) / scale_[d]);
    }
  }
  return largest;
}

}  // namespace entrain
