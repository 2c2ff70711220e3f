#include "tests/oracle/shaped_plans.h"

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/planner/shaped_plan.h"

namespace entrain::oracle {

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

}  // namespace entrain::oracle
