#include "entrain/core/planner/lane_split.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/planner/layer_times.h"
#include "entrain/core/planner/partition.h"
#include "entrain/core/planner/plan_score.h"
#include "entrain/core/schedule/schedule.h"

namespace entrain {
namespace {

constexpr int kMostLanes = 8;

void check_request(const LaneSplitRequest& request) {
  ENTRAIN_INVARIANT(request.model != nullptr && (request.profile != nullptr || request.costs_of),
                    "a lane split needs a model, and a profile or costs");
  if (request.lanes < 1 || request.lanes > kMostLanes) {
    throw InvalidInput(
        fmt::format("lane split: {} lanes; allowed: 1 to {}", request.lanes, kMostLanes));
  }
  if (request.replicas < 1 || request.num_slots < 1) {
    throw InvalidInput(fmt::format("lane split: {} replicas and {} slots; allowed: 1 or more",
                                   request.replicas,
                                   request.num_slots));
  }
  if (request.batches.empty()) {
    throw InvalidInput("lane split: no global batch given; at least one is needed");
  }
  for (const std::vector<SampleWork>& batch : request.batches) {
    if (batch.size() < at(request.replicas)) {
      throw InvalidInput(
          fmt::format("lane split: a global batch of {} samples for {} replicas; each needs one",
                      batch.size(),
                      request.replicas));
    }
  }
  check_name("lane split", "policy", request.policy, policy_names());
  check_name("lane split", "schedule", request.schedule, schedule_names());
}

ModulePlan module_plan(const ModelSpec& model, int module) {
  ModulePlan result;
  result.name = module_name(model, module);
  return result;
}

Plan base_plan(const LaneSplitRequest& request) {
  Plan plan;
  plan.replicas = request.replicas;
  plan.num_slots = request.num_slots;
  plan.policy = request.policy;
  plan.schedule = request.schedule;
  plan.limits = request.limits;
  return plan;
}

StepCosts costs_of(const LaneSplitRequest& request, const Plan& plan, std::size_t batch) {
  return request.costs_of
             ? request.costs_of(plan, batch)
             : step_costs(*request.model, plan, *request.profile, request.batches[batch]);
}

// Forward and backward of all batches, launches of the default slots included.
LayerTimes times_of_batches(const LaneSplitRequest& request) {
  const Plan plan = layer_plan(*request.model);
  const std::int64_t launches = std::int64_t{request.num_slots} * request.replicas;
  LayerTimes result;
  for (std::size_t batch = 0; batch < request.batches.size(); ++batch) {
    const LayerTimes times = layer_times(costs_of(request, plan, batch), launches);
    result.resize(times.size());
    for (std::size_t module = 0; module < times.size(); ++module) {
      result[module].resize(times[module].size(), 0);
      for (std::size_t layer = 0; layer < times[module].size(); ++layer) {
        result[module][layer] += times[module][layer];
      }
    }
  }
  return result;
}

// All ways to give `modules` modules at least one of `lanes` lanes each, lexicographically.
void list_shares(int lanes, int modules, std::vector<int>& head, std::vector<LaneSplit>& result) {
  if (modules == 1) {
    if (lanes >= 1) {
      head.push_back(lanes);
      result.emplace_back().lanes_of = head;
      head.pop_back();
    }
    return;
  }
  for (int share = 1; share <= lanes - (modules - 1); ++share) {
    head.push_back(share);
    list_shares(lanes - share, modules - 1, head, result);
    head.pop_back();
  }
}

std::vector<LaneSplit> list_splits(int lanes, int modules) {
  std::vector<LaneSplit> result;
  if (lanes == 1) {
    result.emplace_back().lanes_of.assign(at(modules), 1);
    return result;
  }
  std::vector<int> head;
  list_shares(lanes, modules, head, result);
  if (modules > 2) {
    for (int share = 1; share < lanes; ++share) {
      LaneSplit& split = result.emplace_back();
      split.lanes_of.assign(at(modules - 1), share);
      split.lanes_of.push_back(lanes - share);
      split.shared_encoders = true;
    }
  }
  return result;
}

std::vector<std::vector<StageRef>> lanes_of(const LaneSplit& split, int lanes) {
  const int llm = static_cast<int>(split.lanes_of.size()) - 1;
  std::vector<std::vector<StageRef>> result(at(lanes));
  for (int module = 0, first = 0; module <= llm; ++module) {
    if (lanes == 1) {
      first = 0;
    } else if (split.shared_encoders) {
      first = module == llm ? split.lanes_of.front() : 0;
    }
    for (int stage = 0; stage < split.lanes_of[at(module)]; ++stage) {
      result[at(first + stage)].push_back({module, stage});
    }
    first += split.lanes_of[at(module)];
  }
  return result;
}

class Scorer {
 public:
  explicit Scorer(const LaneSplitRequest& request)
      : request_(request), layer_ns_(times_of_batches(request)) {}

  // Fills the plan and what simulation says of it, or the reason why there is none.
  void score(LaneSplit& split) const {
    split.plan = base_plan(request_);
    for (int module = 0; module < request_.model->num_modules(); ++module) {
      ModulePlan& part = split.plan.modules.emplace_back(module_plan(*request_.model, module));
      part.stages = min_max_partition(layer_ns_[at(module)], split.lanes_of[at(module)]);
      if (part.stages.empty()) {
        split.reason = fmt::format("{} has {} layers for {} stages",
                                   part.name,
                                   layer_ns_[at(module)].size(),
                                   split.lanes_of[at(module)]);
        return;
      }
    }
    split.plan.lanes = lanes_of(split, request_.lanes);
    validate(split.plan, *request_.model, "lane split");
    for (std::size_t step = 0; step < request_.batches.size() && split.reason.empty(); ++step) {
      simulate_step(static_cast<std::int64_t>(step), split);
    }
    if (split.reason.empty()) {
      finish(split);
    }
  }

 private:
  void simulate_step(std::int64_t step, LaneSplit& split) const {
    const StepCosts costs = costs_of(request_, split.plan, static_cast<std::size_t>(step));
    const StepScore score = score_step(split.plan, costs, step, request_.seed);
    for (const std::int64_t bytes : score.lane_peak_bytes) {
      split.peak_bytes = std::max(split.peak_bytes, bytes);
    }
    if (!score.fits()) {
      split.reason = fmt::format("batch {}: {}", step, score.reason);
      return;
    }
    split.steps.push_back(score.ns);
    split.bound_ns += step_lower_bound(split.plan, costs, request_.schedule).count();
  }

  static void finish(LaneSplit& split) {
    const auto count = static_cast<std::int64_t>(split.steps.size());
    split.mean_ns =
        std::accumulate(split.steps.begin(), split.steps.end(), std::int64_t{0}) / count;
    split.bound_ns /= count;
    PlanCertificate& certificate = split.plan.certificate;
    certificate.simulated_s = static_cast<double>(split.mean_ns) * 1e-9;
    certificate.lower_bound_s = static_cast<double>(split.bound_ns) * 1e-9;
    certificate.ratio =
        split.bound_ns > 0 ? certificate.simulated_s / certificate.lower_bound_s : 0;
  }

  const LaneSplitRequest& request_;
  LayerTimes layer_ns_;
};

std::string describe_split(const LaneSplit& split, const ModelSpec& model) {
  std::vector<std::string> parts;
  for (int module = 0; module < model.num_modules(); ++module) {
    parts.push_back(fmt::format("{} {}", module_name(model, module), split.lanes_of[at(module)]));
  }
  return join(parts, split.shared_encoders ? " | " : " + ");
}

}  // namespace

LaneSplitResult plan_lane_split(const LaneSplitRequest& request) {
  check_request(request);
  LaneSplitResult result;
  result.splits = list_splits(request.lanes, request.model->num_modules());
  const Scorer scorer(request);
  double tried = 0;
  for (LaneSplit& split : result.splits) {
    scorer.score(split);
    if (request.progress) {
      request.progress(++tried / static_cast<double>(result.splits.size()));
    }
  }
  std::stable_sort(
      result.splits.begin(), result.splits.end(), [](const LaneSplit& a, const LaneSplit& b) {
        if (a.reason.empty() != b.reason.empty()) {
          return a.reason.empty();
        }
        return a.reason.empty() && a.mean_ns < b.mean_ns;
      });
  if (!result.fits()) {
    result.reason = fmt::format("none of {} splits of {} lanes fits; the first: {}: {}",
                                result.splits.size(),
                                request.lanes,
                                describe_split(result.splits.front(), *request.model),
                                result.splits.front().reason);
  } else if (result.splits.size() > 1 && result.splits[1].reason.empty() &&
             result.splits[0].mean_ns > 0) {
    result.margin = static_cast<double>(result.splits[1].mean_ns) /
                        static_cast<double>(result.splits[0].mean_ns) -
                    1;
  }
  return result;
}

std::string to_string(const LaneSplitResult& result, const ModelSpec& model) {
  std::size_t width = 5;
  for (const LaneSplit& split : result.splits) {
    width = std::max(width, describe_split(split, model).size());
  }
  std::string text = fmt::format("{:<{}}  {:>10}  {:>7}  {:>10}  {:>10}\n",
                                 "lanes",
                                 width,
                                 "step time",
                                 "to best",
                                 "bound",
                                 "peak");
  for (const LaneSplit& split : result.splits) {
    const std::string name = describe_split(split, model);
    if (!split.reason.empty()) {
      text += fmt::format("{:<{}}  does not fit: {}\n", name, width, split.reason);
      continue;
    }
    const double ratio = static_cast<double>(split.mean_ns) /
                         static_cast<double>(std::max<std::int64_t>(1, result.splits[0].mean_ns));
    text += fmt::format("{:<{}}  {:>10}  {:>7.3f}  {:>10}  {:>10}\n",
                        name,
                        width,
                        format_duration(std::chrono::nanoseconds{split.mean_ns}),
                        ratio,
                        format_duration(std::chrono::nanoseconds{split.bound_ns}),
                        format_bytes(split.peak_bytes));
  }
  if (!result.fits()) {
    text += result.reason + "\n";
  }
  return text;
}

}  // namespace entrain
