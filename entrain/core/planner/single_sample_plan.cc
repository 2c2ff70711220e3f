#include "entrain/core/planner/single_sample_plan.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/planner/lane_shares.h"
#include "entrain/core/planner/layer_times.h"
#include "entrain/core/planner/partition.h"

namespace entrain {
namespace {

void check_request(const SingleSampleRequest& request) {
  ENTRAIN_INVARIANT(request.model != nullptr, "a baseline plan needs a model");
  const int modules = request.model->num_modules();
  int layers = 0;
  for (int module = 0; module < modules; ++module) {
    layers += num_layers(*request.model, module);
  }
  if (request.lanes != 1 && (request.lanes < modules || request.lanes > layers)) {
    throw InvalidInput(
        fmt::format("baseline plan: {} lanes; allowed: 1, or {} to {} for {} "
                    "modules of {} layers; on a cluster more --replicas or --tensor-parallel "
                    "make fewer lanes",
                    request.lanes,
                    modules,
                    layers,
                    modules,
                    layers));
  }
  if (request.replicas < 1 || request.num_slots < 1) {
    throw InvalidInput(fmt::format("baseline plan: {} replicas and {} slots; allowed: 1 or more",
                                   request.replicas,
                                   request.num_slots));
  }
}

// [module][layer] forward and backward of the samples, launches left out.
LayerTimes work_of(const SingleSampleRequest& request, std::span<const SampleWork> samples) {
  Plan plan = layer_plan(*request.model);
  for (ModulePlan& module : plan.modules) {
    module.tensor_parallel = request.tensor_parallel;
    module.context_parallel = request.context_parallel;
  }
  return layer_times(step_costs(*request.model, plan, *request.profile, samples), 0);
}

// [module] whole lanes, at least one each and at most one per layer.
std::vector<int> lanes_by_work(const LayerTimes& layer_ns, int lanes) {
  if (lanes == 1) {
    return std::vector<int>(layer_ns.size(), 1);  // which hosts every module
  }
  std::vector<std::int64_t> work_ns;
  std::vector<int> most;
  for (const std::vector<std::int64_t>& layers : layer_ns) {
    work_ns.push_back(std::accumulate(layers.begin(), layers.end(), std::int64_t{0}));
    most.push_back(static_cast<int>(layers.size()));
  }
  return share_lanes(work_ns, lanes, most);
}

// Everything but stages and lanes.
Plan base_plan(const SingleSampleRequest& request) {
  Plan plan;
  plan.replicas = request.replicas;
  plan.num_slots = request.num_slots;
  plan.policy = request.policy;
  plan.schedule = request.schedule;
  plan.limits = request.limits;
  for (int module = 0; module < request.model->num_modules(); ++module) {
    ModulePlan& part = plan.modules.emplace_back();
    part.name = module_name(*request.model, module);
    part.tensor_parallel = request.tensor_parallel;
    part.context_parallel = request.context_parallel;
  }
  return plan;
}

// One lane a stage, or one lane in all.
Plan with_lanes(const SingleSampleRequest& request, Plan plan) {
  plan.lanes = default_lanes(plan.modules);
  if (request.lanes == 1) {
    std::vector<StageRef> all;
    for (int module = 0; module < request.model->num_modules(); ++module) {
      all.push_back({module, 0});
    }
    plan.lanes = {all};
  }
  validate(plan, *request.model, "baseline plan");
  return plan;
}

}  // namespace

Plan few_samples_plan(const SingleSampleRequest& request, std::span<const SampleWork> samples) {
  check_request(request);
  ENTRAIN_INVARIANT(!samples.empty() && request.profile != nullptr,
                    "a plan from samples needs samples and a profile");
  const LayerTimes layer_ns = work_of(request, samples);
  Plan plan = base_plan(request);
  const std::vector<int> lanes_of = lanes_by_work(layer_ns, request.lanes);
  for (int module = 0; module < request.model->num_modules(); ++module) {
    plan.modules[at(module)].stages = min_max_partition(layer_ns[at(module)], lanes_of[at(module)]);
  }
  return with_lanes(request, std::move(plan));
}

Plan single_sample_plan(const SingleSampleRequest& request, const SampleWork& sample) {
  return few_samples_plan(request, std::span(&sample, 1));
}

Plan even_layers_plan(const SingleSampleRequest& request) {
  check_request(request);
  LayerTimes ones;
  for (int module = 0; module < request.model->num_modules(); ++module) {
    ones.emplace_back(at(num_layers(*request.model, module)), 1);
  }
  const std::vector<int> lanes_of = lanes_by_work(ones, request.lanes);
  const Plan even = even_plan(*request.model, lanes_of, request.replicas, request.num_slots);
  Plan plan = base_plan(request);
  for (std::size_t module = 0; module < plan.modules.size(); ++module) {
    plan.modules[module].stages = even.modules[module].stages;
  }
  return with_lanes(request, std::move(plan));
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
