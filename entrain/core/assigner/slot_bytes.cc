#include "entrain/core/assigner/slot_bytes.h"

#include <algorithm>
#include <cstdint>

#include "entrain/core/base/at.h"

namespace entrain {

SlotBytes::SlotBytes(const Plan& plan, const StepCosts& costs, int num_slots, int percent)
    : costs_(costs) {
  const int llm_stages = static_cast<int>(plan.modules.back().stages.size());
  for (int number = 0; number < plan.num_lanes(); ++number) {
    if (plan.limits.bytes_of(number) == 0) {
      continue;
    }
    Lane& lane = lanes_.emplace_back();
    lane.limit = static_cast<double>(plan.limits.bytes_of(number)) * percent / 100;
    lane.stages = plan.lanes[at(number)];
    for (const StageRef& ref : lane.stages) {
      const int to_its_end =
          static_cast<int>(plan.modules[at(ref.module)].stages.size()) - ref.stage;
      const int to_loss = to_its_end + (ref.module == costs.llm_module() ? 0 : llm_stages);
      lane.window = std::max(lane.window, std::min(to_loss, num_slots));
    }
    lane.held.assign(at(num_slots - lane.window + 1), 0);
    lane.largest.assign(at(num_slots), 0);
  }
}

std::vector<double> SlotBytes::bytes_of(int sample) const {
  std::vector<double> result;
  for (const Lane& lane : lanes_) {
    std::int64_t bytes = 0;
    for (const StageRef& ref : lane.stages) {
      const ModuleCosts& module = costs_.modules[at(ref.module)];
      const std::vector<UnitCost>& units = module.stages[at(ref.stage)].units;
      const int end = module.first_unit[at(sample) + 1];
      for (int unit = module.first_unit[at(sample)]; unit < end; ++unit) {
        const bool kept = units[at(unit)].time.backward().count() > 0;
        bytes += kept ? units[at(unit)].activation_bytes : 0;
      }
    }
    result.push_back(static_cast<double>(bytes));
  }
  return result;
}

double SlotBytes::use(const std::vector<double>& bytes, int slot) const {
  double most = 0;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    most = std::max(most, (lanes_[i].largest[at(slot)] + bytes[i]) / lanes_[i].limit);
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
        double& largest = lane.largest[at(inside)];
        largest = std::max(largest, lane.held[at(window)]);
      }
    }
  }
}

}  // namespace entrain
