#include "entrain/core/study/baselines.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/memory.h"
#include "entrain/core/planner/peer_plans.h"
#include "entrain/core/planner/proportional_plan.h"
#include "entrain/core/planner/single_sample_plan.h"

namespace entrain {
namespace {

constexpr std::size_t kFourSamples = 4;

bool plans_clusters(const std::string& planner) {
  return planner == "b-min" || planner == "dflop" || planner == "orchmllm";
}

Plan plan_of_cluster(const BaselineRequest& request) {
  if (request.search.cluster == nullptr) {
    throw InvalidInput(fmt::format("planner {} shares out the devices of a cluster; give --cluster",
                                   request.planner));
  }
  const FormulaPlan result = request.planner == "dflop"      ? dflop_plan(request.search)
                             : request.planner == "orchmllm" ? orchmllm_plan(request.search)
                                                             : proportional_plan(request.search);
  if (!result.fits()) {
    throw NothingFits("no plan fits: " + result.reason);
  }
  return result.plan;
}

// What the cluster's devices have left beside the plan's state becomes its limit: others' plans run
// on the same devices as ours.
void limit_to_devices(const Study& study, const PlanSearchRequest& search, Plan& plan) {
  const std::vector<StateBytes> states = lane_states(study.model, plan, search.state);
  const ActivationRoom room =
      activation_room(states, search.cluster->memory_bytes, search.reserve_bytes);
  if (!room.fits()) {
    const LaneShortage& first = room.short_lanes.front();
    throw NothingFits(
        fmt::format("no plan fits: lane {} holds {} of parameters, gradients and optimizer states, "
                    "{} more than "
                    "a device has",
                    first.lane,
                    format_bytes(states[static_cast<std::size_t>(first.lane)].total_bytes()),
                    format_bytes(first.missing_bytes)));
  }
  plan.limits.lane_bytes = room.lane_bytes;
  plan.shard_optimizer = search.state.shard_optimizer;
}

Plan few_samples_or_layers(const Study& study, const BaselineRequest& request) {
  SingleSampleRequest few;
  few.model = &study.model;
  few.profile = &study.profile;
  few.lanes = request.lanes;
  few.replicas = request.replicas;
  few.num_slots = request.num_slots;
  few.tensor_parallel = request.tensor_parallel;
  few.policy = request.search.policy;
  few.schedule = request.search.schedule;
  few.limits = request.search.limits;
  if (request.planner == "megatron-even") {
    return even_layers_plan(few);
  }
  const StudyBatch batch = draw_batch(study, 0);
  const std::size_t samples = request.planner == "one-sample" ? 1 : kFourSamples;
  return few_samples_plan(few, std::span(batch.work).first(std::min(samples, batch.work.size())));
}

}  // namespace

std::vector<std::string> baseline_planner_names() {
  return {"one-sample", "four-samples", "b-min", "dflop", "orchmllm", "megatron-even"};
}

Plan baseline_plan(const Study& study, const BaselineRequest& request) {
  const std::vector<std::string> names = baseline_planner_names();
  if (std::find(names.begin(), names.end(), request.planner) == names.end()) {
    throw InvalidInput(
        fmt::format("unknown planner '{}'{}", request.planner, suggestion(request.planner, names)));
  }
  if (study.table.has_value()) {
    throw InvalidInput(fmt::format(
        "planner {} needs --index, --model and --profile instead of --costs", request.planner));
  }
  if (plans_clusters(request.planner)) {
    return plan_of_cluster(request);
  }
  Plan plan = few_samples_or_layers(study, request);
  if (request.search.cluster != nullptr) {
    limit_to_devices(study, request.search, plan);
  }
  return plan;
}

}  // namespace entrain
