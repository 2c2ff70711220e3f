#include "entrain/core/assigner/greedy.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <optional>
#include <span>

#include "entrain/core/assigner/slot_bytes.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

double fourth(double value) {
  const double square = value * value;
  return square * square;
}

// PowerBins with target sizes and the sum of fourth powers of their relative loads.
class PowerBins {
 public:
  explicit PowerBins(const std::vector<Load>& targets) : size_(static_cast<int>(targets.size())) {
    for (std::size_t d = 0; d < kLoadDimensions; ++d) {
      Dimension& of = dimensions_[d];
      of.loads.resize(targets.size());
      of.fourths.resize(targets.size());
      of.weights.reserve(targets.size());
      for (const Load& target : targets) {
        of.weights.push_back(1.0 / fourth(target[d]));
      }
    }
  }

  [[nodiscard]] int size() const { return size_; }

  // Change of the sum when `load` joins the bin.
  [[nodiscard]] double growth(int bin, const Load& load) const {
    double sum = 0;
    for (std::size_t d = 0; d < load.size(); ++d) {
      sum += load[d] != 0 ? dimensions_[d].growth(at(bin), load[d]) : 0;
    }
    return sum;
  }

  // The bin of [begin, end) with the least growth, the first of equals. Runs for every sample and
  // segment of every construction: over those dimensions alone in which the load is not 0.
  [[nodiscard]] int best(int begin, int end, const Load& load) const {
    return best(begin, end, load, [](int) { return true; });
  }

  // The same of those with room for it, -1 if there is none; `has_room` is asked of those alone
  // that are better than all before.
  template <class HasRoom>
  [[nodiscard]] int best(int begin, int end, const Load& load, const HasRoom& has_room) const {
    std::array<std::size_t, kLoadDimensions> used{};
    std::size_t count = 0;
    for (std::size_t d = 0; d < load.size(); ++d) {
      if (load[d] != 0) {
        used[count++] = d;
      }
    }
    switch (count) {
      case 0:
        return best_of<0>(begin, end, load, used, has_room);
      case 1:
        return best_of<1>(begin, end, load, used, has_room);
      case 2:
        return best_of<2>(begin, end, load, used, has_room);
      case 3:
        return best_of<3>(begin, end, load, used, has_room);
      default:
        return best_of<4>(begin, end, load, used, has_room);
    }
  }

  void add(int bin, const Load& load) {
    for (std::size_t d = 0; d < load.size(); ++d) {
      dimensions_[d].set(at(bin), dimensions_[d].loads[at(bin)] + load[d]);
    }
  }
  void remove(int bin, const Load& load) {
    for (std::size_t d = 0; d < load.size(); ++d) {
      dimensions_[d].set(at(bin), dimensions_[d].loads[at(bin)] - load[d]);
    }
  }

 private:
  struct Dimension {  // [bin]
    std::vector<double> loads;
    std::vector<double> fourths;  // of loads
    std::vector<double> weights;

    [[nodiscard]] double growth(std::size_t bin, double load) const {
      return (fourth(loads[bin] + load) - fourths[bin]) * weights[bin];
    }
    void set(std::size_t bin, double load) {
      loads[bin] = load;
      fourths[bin] = fourth(load);
    }
  };

  template <std::size_t kCount, class HasRoom>
  [[nodiscard]] int best_of(int begin,
                            int end,
                            const Load& load,
                            const std::array<std::size_t, kLoadDimensions>& used,
                            const HasRoom& has_room) const {
    int best = -1;
    double least = std::numeric_limits<double>::infinity();
    for (int bin = begin; bin < end; ++bin) {
      double sum = 0;
      for (std::size_t i = 0; i < kCount; ++i) {
        sum += dimensions_[used[i]].growth(at(bin), load[used[i]]);
      }
      if (sum < least && has_room(bin)) {
        best = bin;
        least = sum;
      }
    }
    return best;
  }

  int size_;
  std::array<Dimension, kLoadDimensions> dimensions_;
};

// Largest first: moves one segment to an earlier slot where that pays.
void spread(const BatchLoads& loads,
            const StepCosts& costs,
            std::span<const int> samples,
            int max_deferral,
            PowerBins& bins,
            Placement& placement) {
  constexpr double kWorthwhile = 0.9;
  for (const int sample : samples) {
    const int llm_slot = placement.llm_slot[at(sample)];
    const int begin = max_deferral < 0 ? 0 : std::max(0, llm_slot - max_deferral);
    for (int module = 0; module < costs.llm_module(); ++module) {
      const std::vector<int>& first = costs.modules[at(module)].first_unit;
      const int num_units = first[at(sample + 1)] - first[at(sample)];
      const std::vector<Load>& unit_loads = loads.unit[at(module)];
      int stays = -1;  // the last that does: so do equal ones after it, which begin in one slot
      for (int unit = first[at(sample)]; num_units > 1 && unit < first[at(sample + 1)]; ++unit) {
        const Load& load = unit_loads[at(unit)];
        int& slot = placement.encoder_slot[at(module)][at(unit)];
        if (stays >= 0 && load == unit_loads[at(stays)]) {
          continue;
        }
        bins.remove(slot, load);
        const int other = bins.best(begin, llm_slot + 1, load);
        if (bins.growth(other, load) < kWorthwhile * bins.growth(slot, load)) {
          slot = other;
          stays = -1;
        } else {
          stays = unit;
        }
        bins.add(slot, load);
      }
    }
  }
}

// Those with more encoder work than a mean slot has of it. `samples` of one replica, falling.
std::vector<int> heavier_than_a_slot(const BatchLoads& loads,
                                     const StepCosts& costs,
                                     const std::vector<int>& samples,
                                     int num_slots) {
  std::vector<double> work;  // of samples, in the dimension in which segments have most
  double sum = 0;
  for (const int sample : samples) {
    Load load{};
    for (int module = 0; module < costs.llm_module(); ++module) {
      const std::vector<int>& first = costs.modules[at(module)].first_unit;
      for (int unit = first[at(sample)]; unit < first[at(sample + 1)]; ++unit) {
        for (std::size_t d = 0; d < load.size(); ++d) {
          load[d] += loads.unit[at(module)][at(unit)][d];
        }
      }
    }
    work.push_back(*std::max_element(load.begin(), load.end()));
    sum += work.back();
  }
  std::vector<int> result;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (work[i] > sum / num_slots) {
      result.push_back(samples[i]);
    }
  }
  return result;
}

// Of [begin, end) the slot of the least growth among those that have room; where none has, the one
// that is exceeded least.
int best_with_room(const PowerBins& bins,
                   const SlotBytes& room,
                   int begin,
                   int end,
                   const Load& load,
                   const std::vector<double>& bytes) {
  int best = bins.best(begin, end, load, [&](int slot) { return room.use(bytes, slot) <= 1; });
  if (best >= 0) {
    return best;
  }
  std::pair<double, double> least{std::numeric_limits<double>::infinity(), 0};  // use, growth
  for (int slot = begin; slot < end; ++slot) {
    const std::pair<double, double> here{room.use(bytes, slot), bins.growth(slot, load)};
    if (here < least) {
      best = slot;
      least = here;
    }
  }
  return best;
}

void cut_by_ratio(const BatchLoads& loads,
                  const StepCosts& costs,
                  std::vector<int> samples,
                  const std::vector<double>& targets,
                  Placement& placement) {
  std::vector<double> encoder_share(at(costs.num_samples), 0);
  double total = 0;
  for (const int sample : samples) {
    double all = 0;
    double llm = 0;
    for (std::size_t d = 0; d < loads.sample[at(sample)].size(); ++d) {
      all += loads.sample[at(sample)][d];
      llm += loads.llm[at(sample)][d];
    }
    encoder_share[at(sample)] = all > 0 ? 1.0 - llm / all : 0;
    total += static_cast<double>(loads.normalised[at(sample)]);
  }
  std::stable_sort(samples.begin(), samples.end(), [&](int a, int b) {
    return encoder_share[at(a)] < encoder_share[at(b)];
  });
  double sum_of_targets = 0;
  for (const double target : targets) {
    sum_of_targets += target;
  }
  std::size_t slot = 0;
  double end = total * targets[0] / sum_of_targets;  // of the slot, on the axis of work
  double begun = 0;
  for (const int sample : samples) {
    const auto size = static_cast<double>(loads.normalised[at(sample)]);
    while (slot + 1 < targets.size() && begun + size / 2 > end) {
      end += total * targets[++slot] / sum_of_targets;
    }
    place_sample(costs, sample, static_cast<int>(slot), placement);
    begun += size;
  }
}

SlotShape earlier(SlotShape shape, int by) {
  shape.rise = std::clamp(shape.rise - by, 0, 24);
  shape.fall = std::clamp(shape.fall + by, 0, 24);
  return shape;
}

// [slot] of each lane: the LLM's rise by the rule's lead earlier, the encoders' later. A lane that
// hosts both counts as that of which it has more work.
std::vector<Load> targets_by_lane(const BatchLoads& loads,
                                  const std::vector<int>& samples,
                                  const SlotRule& rule) {
  const std::vector<double> llm = slot_targets(earlier(rule.shape, rule.lead), rule.num_slots);
  const std::vector<double> encoders =
      slot_targets(earlier(rule.shape, -rule.lead), rule.num_slots);
  std::vector<Load> targets(llm.size());
  for (std::size_t d = 0; d < kLoadDimensions; ++d) {
    double all = 0;
    double of_llm = 0;
    for (const int sample : samples) {
      all += loads.sample[at(sample)][d];
      of_llm += loads.llm[at(sample)][d];
    }
    const std::vector<double>& chosen = 2 * of_llm > all ? llm : encoders;
    for (std::size_t slot = 0; slot < targets.size(); ++slot) {
      targets[slot][d] = chosen[slot];
    }
  }
  return targets;
}

// [sample] forward and backward of all its units through all stages, in ns.
std::vector<double> path_times(const StepCosts& costs) {
  std::vector<double> path(at(costs.num_samples), 0);
  for (const ModuleCosts& module : costs.modules) {
    for (const StageCosts& stage : module.stages) {
      for (int sample = 0; sample < costs.num_samples; ++sample) {
        for (int unit = module.first_unit[at(sample)]; unit < module.first_unit[at(sample) + 1];
             ++unit) {
          const OperationTimes& time = stage.units[at(unit)].time;
          path[at(sample)] += static_cast<double>((time.forward + time.backward()).count());
        }
      }
    }
  }
  return path;
}

}  // namespace

std::vector<std::vector<int>> deal_to_replicas(const BatchLoads& loads,
                                               int replicas,
                                               const std::vector<std::vector<int>>& dealt) {
  std::vector<std::vector<int>> result(at(replicas));
  Load even;
  even.fill(1.0);
  PowerBins bins(std::vector<Load>(at(replicas), even));
  std::vector<char> is_dealt(loads.descending.size(), 0);
  int empty = replicas;
  for (std::size_t replica = 0; replica < dealt.size(); ++replica) {
    for (const int sample : dealt[replica]) {
      empty -= result[replica].empty() ? 1 : 0;
      result[replica].push_back(sample);
      bins.add(static_cast<int>(replica), loads.sample[at(sample)]);
      is_dealt[at(sample)] = 1;
    }
  }
  std::vector<int> left;
  std::copy_if(
      loads.descending.begin(), loads.descending.end(), std::back_inserter(left), [&](int sample) {
        return is_dealt[at(sample)] == 0;
      });
  const int count = static_cast<int>(left.size());
  for (int i = 0; i < count; ++i) {
    const int sample = left[at(i)];
    const Load& load = loads.sample[at(sample)];
    int replica = bins.best(0, replicas, load);
    if (count - i <= empty && !result[at(replica)].empty()) {
      replica = 0;
      while (!result[at(replica)].empty()) {
        ++replica;
      }
    }
    empty -= result[at(replica)].empty() ? 1 : 0;
    result[at(replica)].push_back(sample);
    bins.add(replica, load);
  }
  return result;
}

std::vector<std::vector<int>> deal_together(const StepCosts& costs,
                                            const BatchLoads& loads,
                                            int replicas) {
  constexpr double kLong = 0.25;  // of a replica's work: the path of a long sample
  constexpr double kFull = 0.9;   // likewise: the work of long samples that a replica takes
  const std::vector<double> path = path_times(costs);
  const double work = *std::max_element(loads.total.begin(), loads.total.end()) / replicas;
  std::vector<std::vector<int>> together(at(replicas));
  int replica = 0;
  int count = 0;
  double filled = 0;
  for (const int sample : loads.descending) {
    if (path[at(sample)] <= kLong * work) {
      continue;
    }
    const Load& load = loads.sample[at(sample)];
    const double most = *std::max_element(load.begin(), load.end());
    if (filled > 0 && filled + most > kFull * work && replica + 1 < replicas) {
      ++replica;
      filled = 0;
    }
    filled += most;
    together[at(replica)].push_back(sample);
    ++count;
  }
  const int others = costs.num_samples - count;
  if (count < 2 || replica + 1 == replicas || others < replicas - 1 - replica) {
    return {};
  }
  return deal_to_replicas(loads, replicas, together);
}

SlotRule rule_for(SlotRule rule, int num_samples) {
  rule.num_slots = std::min(rule.num_slots, num_samples);
  if (rule.text_front + rule.text_back >= rule.num_slots) {
    rule.text_front = 0;
    rule.text_back = 0;
  }
  return rule;
}

void place_in_slots(const Plan& plan,
                    const BatchLoads& loads,
                    const StepCosts& costs,
                    int replica,
                    const SlotRule& rule,
                    Placement& placement) {
  ENTRAIN_INVARIANT(rule.text_front + rule.text_back < rule.num_slots,
                    "a rule reserves all slots for samples without segments");
  placement.num_slots[at(replica)] = rule.num_slots;
  const std::vector<int>& samples = placement.samples[at(replica)];
  if (rule.by_ratio) {
    cut_by_ratio(loads, costs, samples, slot_targets(rule.shape, rule.num_slots), placement);
    return;
  }
  PowerBins bins(targets_by_lane(loads, samples, rule));
  std::optional<SlotBytes> room;
  if (rule.bytes_percent > 0) {
    room.emplace(plan, rule.num_slots, rule.bytes_percent);
  }
  for (const int sample : samples) {
    const bool text_only = loads.text_only[at(sample)] != 0;
    const int begin = text_only ? 0 : rule.text_front;
    const int end = text_only ? rule.num_slots : rule.num_slots - rule.text_back;
    const Load& load = loads.sample[at(sample)];
    int slot = 0;
    if (room) {
      const std::vector<double>& bytes = loads.lane_bytes[at(sample)];
      slot = best_with_room(bins, *room, begin, end, load, bytes);
      room->add(bytes, slot);
    } else {
      slot = bins.best(begin, end, load);
    }
    bins.add(slot, load);
    place_sample(costs, sample, slot, placement);
  }
  if (rule.spread_segments) {
    spread(loads, costs, samples, plan.limits.max_deferral, bins, placement);
  } else if (rule.spread_heavy > 0) {
    const int allowed = plan.limits.max_deferral;
    spread(loads,
           costs,
           heavier_than_a_slot(loads, costs, samples, rule.num_slots),
           allowed < 0 ? rule.spread_heavy : std::min(allowed, rule.spread_heavy),
           bins,
           placement);
  }
}

}  // namespace entrain
