#include "entrain/core/planner/shared_lanes.h"

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/planner/partition.h"

namespace entrain {
namespace {

// A plan without lanes.
Plan cut_modules(const ModelSpec& model,
                 const LayerTimes& layer_ns,
                 const std::vector<int>& stages,
                 int replicas,
                 int num_slots) {
  ENTRAIN_INVARIANT(
      layer_ns.size() == at(model.num_modules()),
      fmt::format(
          "layer times of {} modules for a model of {}", layer_ns.size(), model.num_modules()));
  Plan plan;
  plan.replicas = replicas;
  plan.num_slots = num_slots;
  for (int module = 0; module < model.num_modules(); ++module) {
    ModulePlan& part = plan.modules.emplace_back();
    part.name = module_name(model, module);
    part.stages = min_max_partition(layer_ns[at(module)], stages[at(module)]);
    if (part.stages.empty()) {
      throw InvalidInput(fmt::format("{} stages wanted for module '{}'; it has {} layers",
                                     stages[at(module)],
                                     part.name,
                                     layer_ns[at(module)].size()));
    }
  }
  return plan;
}

void check_counts(const ModelSpec& model, const std::vector<int>& counts, const char* what) {
  if (counts.size() != at(model.num_modules())) {
    throw InvalidInput(
        fmt::format("{} {} counts given for {} modules", counts.size(), what, model.num_modules()));
  }
  for (int module = 0; module < model.num_modules(); ++module) {
    if (counts[at(module)] < 1) {
      throw InvalidInput(fmt::format("{} {} given for module '{}'; at least 1 is needed",
                                     counts[at(module)],
                                     what,
                                     module_name(model, module)));
    }
  }
}

}  // namespace

Plan interleaved_plan(const ModelSpec& model,
                      const LayerTimes& layer_ns,
                      const std::vector<int>& lanes,
                      const std::vector<int>& chunks,
                      int replicas,
                      int num_slots) {
  check_counts(model, lanes, "lanes");
  check_counts(model, chunks, "chunks");
  std::vector<int> stages;
  for (std::size_t module = 0; module < lanes.size(); ++module) {
    stages.push_back(lanes[module] * chunks[module]);
  }
  Plan plan = cut_modules(model, layer_ns, stages, replicas, num_slots);
  for (int module = 0; module < model.num_modules(); ++module) {
    const std::size_t first = plan.lanes.size();
    plan.lanes.resize(first + at(lanes[at(module)]));
    for (int stage = 0; stage < stages[at(module)]; ++stage) {
      plan.lanes[first + at(stage % lanes[at(module)])].push_back({module, stage});
    }
  }
  plan.schedule = "interleaved";
  validate(plan, model, "interleaved plan");
  return plan;
}

Plan colocated_plan(
    const ModelSpec& model, const LayerTimes& layer_ns, int lanes, int replicas, int num_slots) {
  const std::vector<int> stages(at(model.num_modules()), lanes);
  check_counts(model, stages, "lanes");
  Plan plan = cut_modules(model, layer_ns, stages, replicas, num_slots);
  plan.lanes.resize(at(lanes));
  for (int lane = 0; lane < lanes; ++lane) {
    for (int module = 0; module < model.num_modules(); ++module) {
      plan.lanes[at(lane)].push_back({module, lane});
    }
  }
  plan.schedule = "dip";
  validate(plan, model, "co-located plan");
  return plan;
}

}  // namespace entrain
