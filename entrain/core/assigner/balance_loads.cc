#include "entrain/core/assigner/balance_loads.h"

#include <algorithm>
#include <numeric>

#include "entrain/core/base/at.h"

namespace entrain {
double BalanceTimes::counted(const StepCosts& costs, int module, int sample) const {
  double sum = 0;
  const std::vector<int>& first = costs.modules[at(module)].first_unit;
  for (int i = first[at(sample)]; level[at(module)] > 0 && i < first[at(sample + 1)]; ++i) {
    sum += std::min(1.0, static_cast<double>(unit[at(module)][at(i)]) / level[at(module)]);
  }
  return sum;
}

SlotLoads::SlotLoads(const StepCosts& costs,
                     const BalanceTimes& times,
                     int replica,
                     int max_deferral,
                     Placement& placement)
    : costs_(costs),
      times_(times),
      llm_(costs.llm_module()),
      num_slots_(placement.num_slots[at(replica)]),
      max_deferral_(max_deferral < 0 ? num_slots_ : max_deferral),
      samples_(placement.samples[at(replica)]),
      placement_(placement) {
  clear();
}

std::int64_t SlotLoads::time_of_sample(int module, int sample) const {
  const std::vector<std::int64_t>& unit = times_.unit[at(module)];
  return std::accumulate(unit.begin() + first_unit(module, sample),
                         unit.begin() + first_unit(module, sample + 1),
                         std::int64_t{0});
}

double SlotLoads::in_levels(int module, std::int64_t time) const {
  const double level = times_.level[at(module)];
  return level > 0 ? static_cast<double>(time) / level : 0;
}

int SlotLoads::slot_of(int module, int unit) const {
  return module == llm_ ? placement_.llm_slot[at(sample_of(module, unit))]
                        : placement_.encoder_slot[at(module)][at(unit)];
}

double SlotLoads::score() const {
  double sum = 0;
  for (int module = 0; module <= llm_; ++module) {
    for (const std::int64_t load : load_[at(module)]) {
      const double levels = in_levels(module, load);
      sum += levels * levels;
    }
  }
  return sum;
}

SlotRange SlotLoads::llm_range(int sample) const {
  SlotRange range{0, num_slots_ - 1};
  for (int module = 0; module < llm_; ++module) {
    for (int unit = first_unit(module, sample); unit < first_unit(module, sample + 1); ++unit) {
      const int slot = placement_.encoder_slot[at(module)][at(unit)];
      range.begin = std::max(range.begin, slot);
      range.last = std::min(range.last, slot + max_deferral_);
    }
  }
  return range;
}

SlotRange SlotLoads::range_of(int module, int unit, bool llm_placed) const {
  const int sample = sample_of(module, unit);
  if (module == llm_) {
    return llm_range(sample);
  }
  if (!llm_placed) {
    return {0, num_slots_ - 1};
  }
  const int slot = placement_.llm_slot[at(sample)];
  return {std::max(0, slot - max_deferral_), slot};
}

int SlotLoads::encoder_slot(int sample) const {
  int result = -1;
  for (int module = 0; module < llm_; ++module) {
    for (int unit = first_unit(module, sample); unit < first_unit(module, sample + 1); ++unit) {
      const int slot = placement_.encoder_slot[at(module)][at(unit)];
      if (result >= 0 && slot != result) {
        return -1;
      }
      result = slot;
    }
  }
  return result;
}

void SlotLoads::clear() {
  load_.assign(at(llm_ + 1), std::vector<std::int64_t>(at(num_slots_), 0));
  members_.assign(at(llm_ + 1), std::vector<std::vector<int>>(at(num_slots_)));
  version_.assign(at(llm_ + 1), std::vector<int>(at(num_slots_), 1));
}

void SlotLoads::put(int module, int unit, int slot) {
  if (module == llm_) {
    placement_.llm_slot[at(sample_of(module, unit))] = slot;
  } else {
    placement_.encoder_slot[at(module)][at(unit)] = slot;
  }
  load_[at(module)][at(slot)] += time_of(module, unit);
  members_[at(module)][at(slot)].push_back(unit);
  ++version_[at(module)][at(slot)];
}

void SlotLoads::put_sample(int sample, int slot) {
  for (int module = 0; module <= llm_; ++module) {
    for (int unit = first_unit(module, sample); unit < first_unit(module, sample + 1); ++unit) {
      put(module, unit, slot);
    }
  }
}

void SlotLoads::move(int module, int unit, int to) {
  const int from = slot_of(module, unit);
  std::vector<int>& members = members_[at(module)][at(from)];
  members.erase(std::find(members.begin(), members.end(), unit));
  load_[at(module)][at(from)] -= time_of(module, unit);
  ++version_[at(module)][at(from)];
  put(module, unit, to);
}

void SlotLoads::reload() {
  clear();
  for (const int sample : samples_) {
    for (int module = 0; module <= llm_; ++module) {
      for (int unit = first_unit(module, sample); unit < first_unit(module, sample + 1); ++unit) {
        put(module, unit, slot_of(module, unit));
      }
    }
  }
}

}  // namespace entrain
