#include "entrain/core/planner/recompute_levels.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "entrain/core/base/at.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/step_graph.h"
#include "entrain/core/planner/batch_sum.h"

namespace entrain {
namespace {

int layers_of(const Plan& plan, const StageRef& ref) {
  const LayerRange range = plan.modules[at(ref.module)].stages[at(ref.stage)];
  return range.end - range.begin;
}

class Levels {
 public:
  Levels(const ModelSpec& model,
         const Plan& plan,
         const Profile& profile,
         std::span<const SampleWork> batch)
      : plan_(plan), stages_(stage_graph(plan, profile.link)) {
    int most = 0;
    for (const std::vector<StageRef>& lane : plan.lanes) {
      int& steps = steps_.emplace_back(0);
      for (const StageRef& ref : lane) {
        steps = std::max(steps, layers_of(plan, ref));
      }
      most = std::max(most, steps);
    }
    shares_.resize(plan.lanes.size());
    const std::vector<SampleWork> sum = {batch_sum(batch)};
    for (int step = 0; step <= most; ++step) {
      Plan at_step = plan;
      set_counts(counts_at(std::vector<int>(plan.lanes.size(), step)), at_step);
      const StepCosts costs = step_costs(model, at_step, profile, sum);
      for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
        if (step <= steps_[lane]) {
          shares_[lane].push_back(share_of_limit(costs, static_cast<int>(lane)));
        }
      }
    }
  }

  [[nodiscard]] RecomputeLevels list() const {
    std::set<double, std::greater<>> shares;
    for (const std::vector<double>& of_lane : shares_) {
      shares.insert(of_lane.begin(), of_lane.end());
    }
    RecomputeLevels result;
    result.levels.push_back(counts_at(std::vector<int>(plan_.lanes.size(), 0)));
    bool guessed = false;
    for (const double share : shares) {
      add(counts_at(first_under(share)), result);
      if (!guessed) {
        result.guess = static_cast<int>(result.levels.size()) - 1;
        guessed = share <= 1;
      }
    }
    add(counts_at(steps_), result);
    result.guess = guessed ? result.guess : static_cast<int>(result.levels.size()) - 1;
    return result;
  }

 private:
  static void set_counts(const RecomputeCounts& counts, Plan& plan) {
    for (std::size_t module = 0; module < counts.size(); ++module) {
      plan.modules[module].recompute = counts[module];
    }
  }

  static void add(RecomputeCounts counts, RecomputeLevels& to) {
    if (to.levels.back() != counts) {
      to.levels.push_back(std::move(counts));
    }
  }

  // Of a lane's steps, so many as its largest stage has layers, each stage does its share.
  [[nodiscard]] RecomputeCounts counts_at(const std::vector<int>& step_of_lane) const {
    RecomputeCounts counts;
    for (const ModulePlan& module : plan_.modules) {
      counts.emplace_back(module.stages.size(), 0);
    }
    for (std::size_t lane = 0; lane < plan_.lanes.size(); ++lane) {
      const int step = std::min(step_of_lane[lane], steps_[lane]);
      for (const StageRef& ref : plan_.lanes[lane]) {
        const int layers = layers_of(plan_, ref);
        counts[at(ref.module)][at(ref.stage)] = (step * layers + steps_[lane] - 1) / steps_[lane];
      }
    }
    return counts;
  }

  [[nodiscard]] int slots_held(const StageRef& ref) const {
    if (plan_.num_lanes() == 1) {
      return 1;
    }
    const int first = stages_.first_stage[at(ref.module)];
    const int held = plan_.schedule == "gpipe" ? plan_.num_slots
                                               : stages_.stages[at(first + ref.stage)].warm_up + 1;
    return std::min(held, plan_.num_slots);
  }

  // `costs` of one sample that is the whole batch.
  [[nodiscard]] double share_of_limit(const StepCosts& costs, int lane) const {
    double held = 0;
    double largest = 0;
    for (const StageRef& ref : plan_.lanes[at(lane)]) {
      const UnitCost& all = costs.modules[at(ref.module)].stages[at(ref.stage)].units.front();
      held += static_cast<double>(all.activation_bytes) * slots_held(ref);
      largest = std::max(largest, static_cast<double>(all.recompute.largest));
    }
    const double slots = static_cast<double>(plan_.replicas) * plan_.num_slots;
    const auto limit = static_cast<double>(std::max<std::int64_t>(1, plan_.limits.bytes_of(lane)));
    return (held + largest) / slots / limit;
  }

  // [lane] the first step that is under the share, else the one nearest to it.
  [[nodiscard]] std::vector<int> first_under(double share) const {
    std::vector<int> result;
    for (const std::vector<double>& of_lane : shares_) {
      auto found = std::find_if(
          of_lane.begin(), of_lane.end(), [share](double own) { return own <= share; });
      if (found == of_lane.end()) {
        found = std::min_element(of_lane.begin(), of_lane.end());
      }
      result.push_back(static_cast<int>(found - of_lane.begin()));
    }
    return result;
  }

  const Plan& plan_;
  StageGraph stages_;
  std::vector<int> steps_;                   // [lane] layers of its largest stage
  std::vector<std::vector<double>> shares_;  // [lane][step] of its limit
};

}  // namespace

RecomputeLevels recompute_levels(const ModelSpec& model,
                                 const Plan& plan,
                                 const Profile& profile,
                                 std::span<const SampleWork> batch) {
  return Levels(model, plan, profile, batch).list();
}

RecomputeCounts full_recompute(const Plan& plan) {
  RecomputeCounts counts;
  for (const ModulePlan& module : plan.modules) {
    std::vector<int>& of_module = counts.emplace_back();
    for (const LayerRange& layers : module.stages) {
      of_module.push_back(layers.end - layers.begin);
    }
  }
  return counts;
}

void set_recompute(const RecomputeCounts& counts, Plan& plan) {
  for (std::size_t module = 0; module < plan.modules.size(); ++module) {
    plan.modules[module].recompute = counts.empty() ? std::vector<int>() : counts[module];
    if (!recomputes(plan.modules[module])) {
      plan.modules[module].recompute.clear();
    }
  }
}

int recomputed_layers(const Plan& plan) {
  int layers = 0;
  for (const ModulePlan& module : plan.modules) {
    layers = std::accumulate(module.recompute.begin(), module.recompute.end(), layers);
  }
  return layers;
}

}  // namespace entrain
