#include "entrain/core/planner/layer_times.h"

namespace entrain {

Plan layer_plan(const ModelSpec& model) {
  Plan plan;
  for (int module = 0; module < model.num_modules(); ++module) {
    ModulePlan& part = plan.modules.emplace_back();
    part.name = module_name(model, module);
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      part.stages.push_back({layer, layer + 1});
    }
  }
  plan.lanes = default_lanes(plan.modules);
  return plan;
}

LayerTimes layer_times(const StepCosts& costs, std::int64_t launches) {
  LayerTimes result;
  for (const ModuleCosts& module : costs.modules) {
    std::vector<std::int64_t>& layers = result.emplace_back();
    for (const StageCosts& stage : module.stages) {
      std::int64_t& time =
          layers.emplace_back(launches * (stage.launch.forward + stage.launch.backward()).count());
      for (const UnitCost& unit : stage.units) {
        time += (unit.time.forward + unit.time.backward()).count();
      }
    }
  }
  return result;
}

}  // namespace entrain
