#include "entrain/core/planner/shaped_plan.h"

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

}  // namespace entrain
