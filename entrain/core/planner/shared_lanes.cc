#include "entrain/core/planner/shared_lanes.h"

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/planner/partition.h"

namespace entrain {
Plan shaped_plan(const ModelSpec& model, const LayerTimes& layer_ns, const PlanShape& shape) {
  ENTRAIN_INVARIANT(
      layer_ns.size() == at(model.num_modules()),
      fmt::format(
          "layer times of {} modules for a model of {}", layer_ns.size(), model.num_modules()));
  if (shape.modules.size() != layer_ns.size()) {
    throw InvalidInput(fmt::format(
        "lanes of {} modules given for a model of {}", shape.modules.size(), layer_ns.size()));
  }
  Plan plan;
  plan.replicas = shape.replicas;
  plan.num_slots = shape.num_slots;
  for (int module = 0; module < model.num_modules(); ++module) {
    const ModuleShape& of = shape.modules[at(module)];
    ModulePlan& part = plan.modules.emplace_back();
    part.name = module_name(model, module);
    part.tensor_parallel = of.degrees.tensor_parallel;
    part.context_parallel = of.degrees.context_parallel;
    if (of.stages < 1 || of.virtual_stages < 1) {
      throw InvalidInput(
          fmt::format("{} lanes of {} stages given for module '{}'; at least 1 is needed",
                      of.stages,
                      of.virtual_stages,
                      part.name));
    }
    part.stages = wrapped_partition(layer_ns[at(module)], of.stages, of.virtual_stages);
    if (part.stages.empty()) {
      throw InvalidInput(fmt::format("{} stages wanted for module '{}'; it has {} layers",
                                     of.all_stages(),
                                     part.name,
                                     layer_ns[at(module)].size()));
    }
  }
  plan.lanes = lane_stages(shape);
  validate(plan, model, "plan of given lanes");
  return plan;
}

Plan interleaved_plan(const ModelSpec& model,
                      const LayerTimes& layer_ns,
                      const std::vector<int>& lanes,
                      const std::vector<int>& chunks,
                      int replicas,
                      int num_slots) {
  ENTRAIN_INVARIANT(lanes.size() == chunks.size(), "lanes and chunks of every module");
  PlanShape shape{replicas, num_slots, ModuleLayout::kOwnLanes, {}};
  for (std::size_t module = 0; module < lanes.size(); ++module) {
    shape.modules.push_back({{}, lanes[module], chunks[module]});
  }
  Plan plan = shaped_plan(model, layer_ns, shape);
  plan.schedule = "interleaved";
  return plan;
}

Plan colocated_plan(
    const ModelSpec& model, const LayerTimes& layer_ns, int lanes, int replicas, int num_slots) {
  const std::vector<ModuleShape> modules(at(model.num_modules()), {{}, lanes});
  Plan plan =
      shaped_plan(model, layer_ns, {replicas, num_slots, ModuleLayout::kColocated, modules});
  plan.schedule = "dip";
  return plan;
}

}  // namespace entrain
