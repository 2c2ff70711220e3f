#include "entrain/core/assigner/slot_bytes.h"

#include <algorithm>
#include <cstdint>

#include "entrain/core/base/at.h"

namespace entrain {

std::vector<std::vector<double>> activations_of(const Plan& plan, const StepCosts& costs) {
  std::vector<std::vector<double>> result(at(costs.num_samples));
  for (int lane = 0; lane < plan.num_lanes(); ++lane) {
    for (int sample = 0; sample < costs.num_samples && plan.limits.bytes_of(lane) > 0; ++sample) {
      std::int64_t bytes = 0;
      for (const StageRef& ref : plan.lanes[at(lane)]) {
        const ModuleCosts& module = costs.modules[at(ref.module)];
        const SharedVector<UnitCost>& units = module.stages[at(ref.stage)].units;
        const int end = module.first_unit[at(sample) + 1];
        for (int unit = module.first_unit[at(sample)]; unit < end; ++unit) {
          const bool kept = units[at(unit)].time.backward().count() > 0;
          bytes += kept ? units[at(unit)].activation_bytes : 0;
        }
      }
      result[at(sample)].push_back(static_cast<double>(bytes));
    }
  }
  return result;
}

SlotBytes::SlotBytes(const Plan& plan, int num_slots, int percent) {
  const int llm = static_cast<int>(plan.modules.size()) - 1;
  const int llm_stages = static_cast<int>(plan.modules.back().stages.size());
  for (int number = 0; number < plan.num_lanes(); ++number) {
    if (plan.limits.bytes_of(number) == 0) {
      continue;
    }
    Lane& lane = lanes_.emplace_back();
    limits_.push_back(static_cast<double>(plan.limits.bytes_of(number)) * percent / 100);
    for (const StageRef& ref : plan.lanes[at(number)]) {
      const int to_its_end =
          static_cast<int>(plan.modules[at(ref.module)].stages.size()) - ref.stage;
      const int to_loss = to_its_end + (ref.module == llm ? 0 : llm_stages);
      lane.window = std::max(lane.window, std::min(to_loss, num_slots));
    }
    lane.held.assign(at(num_slots - lane.window + 1), 0);
  }
  largest_.assign(at(num_slots) * lanes_.size(), 0);
}

double SlotBytes::use(const std::vector<double>& bytes, int slot) const {
  const double* largest = largest_.data() + at(slot) * lanes_.size();
  double most = 0;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    most = std::max(most, (largest[i] + bytes[i]) / limits_[i]);
  }
  return most;
}

void SlotBytes::add(const std::vector<double>& bytes, int slot) {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    const int last = std::min(slot, static_cast<int>(lane.held.size()) - 1);
    for (int window = std::max(0, slot - lane.window + 1); window <= last; ++window) {
      lane.held[at(window)] += bytes[i];
      for (int inside = window; inside < window + lane.window; ++inside) {
        double& largest = largest_[at(inside) * lanes_.size() + i];
        largest = std::max(largest, lane.held[at(window)]);
      }
    }
  }
}

}  // namespace entrain
