#include "entrain/core/planner/single_sample_plan.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/planner/partition.h"

namespace entrain {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

void check_request(const SingleSampleRequest& request) {
  ENTRAIN_INVARIANT(request.model != nullptr && request.profile != nullptr,
                    "a plan from one sample needs a model and a profile");
  const int modules = request.model->num_modules();
  int layers = 0;
  for (int module = 0; module < modules; ++module) {
    layers += num_layers(*request.model, module);
  }
  if (request.lanes != 1 && (request.lanes < modules || request.lanes > layers)) {
    throw InvalidInput(
        fmt::format("plan from one sample: {} lanes; allowed: 1, or {} to {} for {} "
                    "modules of {} layers",
                    request.lanes,
                    modules,
                    layers,
                    modules,
                    layers));
  }
  if (request.replicas < 1 || request.num_slots < 1) {
    throw InvalidInput(
        fmt::format("plan from one sample: {} replicas and {} slots; allowed: 1 or more",
                    request.replicas,
                    request.num_slots));
  }
}

// [module][layer] forward and backward of the sample.
std::vector<std::vector<std::int64_t>> layer_times(const SingleSampleRequest& request,
                                                   const SampleWork& sample) {
  const ModelSpec& model = *request.model;
  Plan plan;
  for (int module = 0; module < model.num_modules(); ++module) {
    ModulePlan& part = plan.modules.emplace_back();
    part.name = module_name(model, module);
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      part.stages.push_back({layer, layer + 1});
    }
  }
  plan.lanes = default_lanes(plan.modules);
  const StepCosts costs = step_costs(model, plan, *request.profile, std::span(&sample, 1));
  std::vector<std::vector<std::int64_t>> result;
  for (const ModuleCosts& module : costs.modules) {
    std::vector<std::int64_t>& layers = result.emplace_back();
    for (const StageCosts& stage : module.stages) {
      std::int64_t& time = layers.emplace_back(0);
      for (const UnitCost& unit : stage.units) {
        time += (unit.time.forward + unit.time.backward()).count();
      }
    }
  }
  return result;
}

// [module] whole lanes, at least one each.
std::vector<int> share_lanes(const std::vector<std::vector<std::int64_t>>& layer_ns, int lanes) {
  std::vector<double> work;
  for (const std::vector<std::int64_t>& layers : layer_ns) {
    work.push_back(
        static_cast<double>(std::accumulate(layers.begin(), layers.end(), std::int64_t{0})));
  }
  const double total = std::accumulate(work.begin(), work.end(), 0.0);
  std::vector<int> result(layer_ns.size(), 1);
  // Lane by lane to the module that lacks most of its exact share: largest remainder, with at least
  // one lane and at most one per layer.
  for (int given = static_cast<int>(layer_ns.size()); given < lanes; ++given) {
    int best = -1;
    double most = 0;
    for (std::size_t module = 0; module < work.size(); ++module) {
      if (at(result[module]) == layer_ns[module].size()) {
        continue;
      }
      const double exact = total > 0 ? work[module] / total * lanes : 0;
      const double lacking = exact - result[module];
      if (best < 0 || lacking > most) {
        best = static_cast<int>(module);
        most = lacking;
      }
    }
    ++result[at(best)];
  }
  return result;
}

}  // namespace

Plan single_sample_plan(const SingleSampleRequest& request, const SampleWork& sample) {
  check_request(request);
  const std::vector<std::vector<std::int64_t>> layer_ns = layer_times(request, sample);
  Plan plan;
  plan.replicas = request.replicas;
  plan.num_slots = request.num_slots;
  plan.policy = request.policy;
  plan.schedule = request.schedule;
  plan.limits = request.limits;
  const std::vector<int> lanes_of = request.lanes == 1 ? std::vector<int>(layer_ns.size(), 1)
                                                       : share_lanes(layer_ns, request.lanes);
  for (int module = 0; module < request.model->num_modules(); ++module) {
    ModulePlan& part = plan.modules.emplace_back();
    part.name = module_name(*request.model, module);
    part.stages = min_max_partition(layer_ns[at(module)], lanes_of[at(module)]);
  }
  plan.lanes = default_lanes(plan.modules);
  if (request.lanes == 1) {
    std::vector<StageRef> all;
    for (int module = 0; module < request.model->num_modules(); ++module) {
      all.push_back({module, 0});
    }
    plan.lanes = {all};
  }
  validate(plan, *request.model, "plan from one sample");
  return plan;
}

std::vector<CountedPlan> single_sample_plans(const SingleSampleRequest& request,
                                             std::span<const SampleWork> draws) {
  std::vector<CountedPlan> result;
  for (const SampleWork& draw : draws) {
    Plan plan = single_sample_plan(request, draw);
    const auto known = std::find_if(
        result.begin(), result.end(), [&](const CountedPlan& other) { return other.plan == plan; });
    if (known != result.end()) {
      ++known->count;
    } else {
      result.push_back({std::move(plan), 1});
    }
  }
  return result;
}

}  // namespace entrain
