#include "entrain/core/assigner/slot_bytes.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "entrain/core/base/at.h"

namespace entrain {

std::vector<std::vector<double>> activations_of(const Plan& plan, const StepCosts& costs) {
  std::vector<std::vector<double>> result(at(costs.num_samples));
  for (std::vector<double>& lanes : result) {
    lanes.reserve(at(plan.num_lanes()));
  }
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
    const int first = std::max(0, slot - lane.window + 1);
    const int last = std::min(slot, static_cast<int>(lane.held.size()) - 1);
    const auto raise = [&](int inside, double held) {
      double& largest = largest_[at(inside) * lanes_.size() + i];
      largest = std::max(largest, held);
    };
    double held = 0;  // the most of the windows that grew and contain a slot
    for (int window = first; window <= last; ++window) {
      lane.held[at(window)] += bytes[i];
      held = std::max(held, lane.held[at(window)]);
      raise(window, held);
    }
    held = 0;
    int window = last + 1;
    for (int inside = last + lane.window - 1; inside > last; --inside) {
      while (window > std::max(first, inside - lane.window + 1)) {
        held = std::max(held, lane.held[at(--window)]);
      }
      raise(inside, held);
    }
  }
}

Placement one_sample_a_slot(const AssignRequest& request) {
  const Plan& plan = *request.plan;
  const StepCosts& costs = *request.costs;
  const std::vector<std::vector<double>> bytes = activations_of(plan, costs);
  const SlotBytes empty(plan, 1, 100);
  std::vector<std::pair<double, int>> largest_first;  // share of the fullest lane's limit
  for (int sample = 0; sample < costs.num_samples; ++sample) {
    largest_first.emplace_back(-empty.use(bytes[at(sample)], 0), sample);
  }
  std::sort(largest_first.begin(), largest_first.end());

  struct Replica {
    SlotBytes held;
    std::vector<int> samples;  // [slot], -1: free
    int free = 0;
    double share = 0;
  };
  const std::vector<int> runs = even_runs(costs.num_samples, plan.replicas);
  std::vector<Replica> replicas;
  for (int replica = 0; replica < plan.replicas; ++replica) {
    const int count = runs[at(replica) + 1] - runs[at(replica)];
    replicas.push_back({SlotBytes(plan, count, 100), std::vector<int>(at(count), -1), count});
  }
  for (const auto& [less, sample] : largest_first) {
    Replica& replica =
        *std::min_element(replicas.begin(), replicas.end(), [](const Replica& a, const Replica& b) {
          return std::pair(a.free == 0, a.share) < std::pair(b.free == 0, b.share);
        });
    std::pair<double, int> least{std::numeric_limits<double>::max(), -1};  // use, slot
    const int num_slots = static_cast<int>(replica.samples.size());
    for (int slot = 0; slot < num_slots && least.first > -less; ++slot) {  // none is under its own
      if (replica.samples[at(slot)] < 0) {
        least = std::min(least, {replica.held.use(bytes[at(sample)], slot), slot});
      }
    }
    replica.samples[at(least.second)] = sample;
    replica.held.add(bytes[at(sample)], least.second);
    replica.share -= less;
    --replica.free;
  }
  std::vector<int> order;
  for (const Replica& replica : replicas) {
    order.insert(order.end(), replica.samples.begin(), replica.samples.end());
  }
  return deal_in_order(costs, order, plan.replicas, costs.num_samples);
}

}  // namespace entrain
