#include "entrain/core/study/turned_out.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

// The times of a sample's units on a stage.
void scale(StepCosts& costs, const StageRef& ref, int sample, double factor) {
  ModuleCosts& module = costs.modules[at(ref.module)];
  for (int unit = module.first_unit[at(sample)]; unit < module.first_unit[at(sample) + 1]; ++unit) {
    OperationTimes& time = module.stages[at(ref.stage)].units[at(unit)].time;
    for (std::chrono::nanoseconds* part :
         {&time.forward, &time.backward_input, &time.backward_weight, &time.split}) {
      *part = std::chrono::nanoseconds(std::llround(factor * static_cast<double>(part->count())));
    }
  }
}

// Of samples that are marked, on the lane of the LLM's first stage.
void slow_first_lane(StepCosts& costs,
                     const Plan& plan,
                     const std::vector<char>& marked,
                     double factor) {
  const StageRef first{costs.llm_module(), 0};
  for (const std::vector<StageRef>& lane : plan.lanes) {
    if (std::find(lane.begin(), lane.end(), first) == lane.end()) {
      continue;
    }
    for (const StageRef& ref : lane) {
      for (int sample = 0; sample < costs.num_samples; ++sample) {
        if (marked[at(sample)] != 0) {
          scale(costs, ref, sample, factor);
        }
      }
    }
  }
}

}  // namespace

StepCosts drawn_costs(StepCosts costs, double spread, std::uint64_t seed) {
  Rng rng(seed, 77);
  for (int module = 0; module <= costs.llm_module(); ++module) {
    for (int sample = 0; sample < costs.num_samples; ++sample) {
      const double factor = std::exp(spread * rng.normal() - spread * spread / 2);
      for (int stage = 0; stage < std::ssize(costs.modules[at(module)].stages); ++stage) {
        scale(costs, {module, stage}, sample, factor);
      }
    }
  }
  return costs;
}

StepCosts slow_stage(StepCosts costs, const Plan& plan, double factor) {
  slow_first_lane(costs, plan, std::vector<char>(at(costs.num_samples), 1), factor);
  return costs;
}

StepCosts slow_device(StepCosts costs,
                      const Plan& plan,
                      const StepAssignment& assignment,
                      int replica,
                      double factor) {
  std::vector<char> marked(at(costs.num_samples), 0);
  for (const ModuleSlots& module : assignment.replicas[at(replica)].modules) {
    for (const auto& slot : module) {
      for (const WorkItem& item : slot) {
        marked[at(item.sample)] = 1;
      }
    }
  }
  slow_first_lane(costs, plan, marked, factor);
  return costs;
}

}  // namespace entrain
