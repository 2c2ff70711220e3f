#include "entrain/core/planner/lane_split.h"

#include <algorithm>
#include <chrono>
#include <limits>
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
#include "entrain/core/planner/plan_score.h"
#include "entrain/core/planner/shaped_plan.h"
#include "entrain/core/schedule/schedule.h"

namespace entrain {
namespace {

constexpr int kMostLanes = 8;

SharedLanes shared_lanes_of(const LaneSplitRequest& request) {
  return shared_lanes_of(request.schedule, request.shared_lanes);
}

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
      throw InvalidInput(fmt::format("lane split: a global batch of {} for {}; each needs one",
                                     counted(std::ssize(batch), "sample"),
                                     counted(request.replicas, "replica")));
    }
  }
  check_name("lane split", "policy", request.policy, policy_names());
  check_name("lane split", "schedule", request.schedule, schedule_names());
  check_lane_contents(
      *request.model, request.schedule, shared_lanes_of(request), request.virtual_stages);
}

StepCosts costs_of(const LaneSplitRequest& request, const Plan& plan, std::size_t batch) {
  return request.costs_of
             ? request.costs_of(plan, batch)
             : step_costs(*request.model, plan, *request.profile, request.batches[batch]);
}

// Forward and backward of all batches, launches of the default slots included.
LayerTimes times_of_batches(const LaneSplitRequest& request) {
  Plan plan = layer_plan(*request.model);
  for (ModulePlan& module : plan.modules) {
    module.tensor_parallel = request.tensor_parallel;
  }
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

// All ways to give the modules behind `shape.modules` at least one of `lanes` lanes each,
// lexicographically.
void list_shares(
    int lanes, int modules, Degrees degrees, PlanShape shape, std::vector<PlanShape>& result) {
  for (int share = modules == 1 ? lanes : 1; share <= lanes - (modules - 1); ++share) {
    PlanShape with = shape;
    with.modules.push_back({degrees, share});
    if (modules == 1) {
      result.push_back(std::move(with));
    } else {
      list_shares(lanes - share, modules - 1, degrees, std::move(with), result);
    }
  }
}

Degrees degrees_of(const LaneSplitRequest& request) {
  return {request.tensor_parallel, 1};
}

std::vector<PlanShape> own_lanes(const LaneSplitRequest& request) {
  std::vector<PlanShape> result;
  list_shares(request.lanes,
              request.model->num_modules(),
              degrees_of(request),
              {request.replicas, request.num_slots, ModuleLayout::kOwnLanes, {}},
              result);
  return result;
}

// Splits whose lanes host one stage of a module.
std::vector<PlanShape> list_splits(const LaneSplitRequest& request) {
  const int lanes = request.lanes;
  const int modules = request.model->num_modules();
  PlanShape shared{request.replicas, request.num_slots, ModuleLayout::kColocated, {}};
  const SharedLanes sharing = shared_lanes_of(request);
  shared.modules.assign(at(modules), {degrees_of(request), lanes});
  if (sharing == SharedLanes::kOnly || (lanes == 1 && modules > 1)) {
    return {shared};
  }
  std::vector<PlanShape> result = own_lanes(request);
  if (sharing == SharedLanes::kToo && modules > 1) {
    result.push_back(shared);
  }
  shared.layout = ModuleLayout::kSharedEncoders;
  for (int share = 1; share < lanes && modules > 2; ++share) {
    shared.modules.assign(at(modules - 1), {degrees_of(request), share});
    shared.modules.push_back({degrees_of(request), lanes - share});
    result.push_back(shared);
  }
  return result;
}

// The most virtual stages that every module of the shape has layers for.
int layers_allow(const ModelSpec& model, const PlanShape& shape) {
  int most = num_layers(model, 0) / shape.modules[0].stages;
  for (int module = 1; module < model.num_modules(); ++module) {
    most = std::min(most, num_layers(model, module) / shape.modules[at(module)].stages);
  }
  return most;
}

// Splits in which every module has so many virtual stages.
std::vector<PlanShape> list_virtual(const LaneSplitRequest& request) {
  std::vector<PlanShape> result = own_lanes(request);
  int allowed = 0;
  for (PlanShape& shape : result) {
    allowed = std::max(allowed, layers_allow(*request.model, shape));
    for (ModuleShape& module : shape.modules) {
      module.virtual_stages = request.virtual_stages;
    }
  }
  if (result.empty() || request.virtual_stages > allowed) {
    throw InvalidInput(
        result.empty()
            ? fmt::format("virtual stages need a lane of every module's own: {} given for {}",
                          counted(request.lanes, "lane"),
                          counted(request.model->num_modules(), "module"))
            : fmt::format("{} virtual stages wanted; on {} the layers allow {} at most",
                          request.virtual_stages,
                          counted(request.lanes, "lane"),
                          allowed));
  }
  return result;
}

// Adds what the modules from `module` on can make of the shape with up to `most` virtual stages,
// so many on one of all modules.
void add_virtual(
    const ModelSpec& model, PlanShape shape, int module, int most, std::vector<PlanShape>& result) {
  if (module == model.num_modules()) {
    if (std::any_of(shape.modules.begin(), shape.modules.end(), [most](const ModuleShape& of) {
          return of.virtual_stages == most;
        })) {
      result.push_back(std::move(shape));
    }
    return;
  }
  ModuleShape& of = shape.modules[at(module)];
  const int allowed = num_layers(model, module) / of.stages;
  for (of.virtual_stages = 1; of.virtual_stages <= std::min(most, allowed); ++of.virtual_stages) {
    add_virtual(model, shape, module + 1, most, result);
  }
}

class Scorer {
 public:
  explicit Scorer(const LaneSplitRequest& request)
      : request_(request), layer_ns_(times_of_batches(request)) {}

  // Fills the plan and what simulation says of it, or the reason why there is none. A split that
  // can be no faster than `faster_than` by its lower bounds is not simulated to the end.
  void score(LaneSplit& split, std::int64_t faster_than) const {
    for (std::size_t module = 0; module < layer_ns_.size(); ++module) {
      const int stages = split.shape.modules[module].all_stages();
      if (std::ssize(layer_ns_[module]) < stages) {
        split.reason = fmt::format("{} has {} for {}",
                                   module_name(*request_.model, static_cast<int>(module)),
                                   counted(std::ssize(layer_ns_[module]), "layer"),
                                   counted(stages, "stage"));
        return;
      }
    }
    split.plan = shaped_plan(*request_.model, layer_ns_, split.shape);
    split.plan.policy = request_.policy;
    split.plan.schedule = request_.schedule;
    split.plan.limits = request_.limits;
    simulate_steps(faster_than, split);
    if (split.reason.empty()) {
      finish(split);
    }
  }

 private:
  void simulate_steps(std::int64_t faster_than, LaneSplit& split) const {
    const std::size_t count = request_.batches.size();
    std::vector<StepCosts> costs;
    std::vector<std::int64_t> bounds;
    for (std::size_t step = 0; step < count; ++step) {
      costs.push_back(costs_of(request_, split.plan, step));
      bounds.push_back(step_lower_bound(split.plan, costs[step], split.plan.schedule).count());
      split.bound_ns += bounds[step];
    }
    std::int64_t least_ns = split.bound_ns;  // of all steps together
    for (std::size_t step = 0; step < count && split.reason.empty(); ++step) {
      const std::int64_t mean_ns = least_ns / static_cast<std::int64_t>(count);
      if (mean_ns >= faster_than) {
        split.slower = true;
        split.reason = fmt::format("takes {} at least, another one {}",
                                   format_duration(std::chrono::nanoseconds{mean_ns}),
                                   format_duration(std::chrono::nanoseconds{faster_than}));
        return;
      }
      simulate_step(static_cast<std::int64_t>(step), costs[step], split);
      least_ns += split.reason.empty() ? split.steps.back() - bounds[step] : 0;
    }
  }

  void simulate_step(std::int64_t step, const StepCosts& costs, LaneSplit& split) const {
    const StepScore score = score_step(split.plan, costs, step, request_.seed);
    for (const std::int64_t bytes : score.lane_peak_bytes) {
      split.peak_bytes = std::max(split.peak_bytes, bytes);
    }
    if (score.fits()) {
      split.steps.push_back(score.ns);
    } else {
      split.reason = fmt::format("batch {}: {}", step, score.reason);
    }
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

// "vision 1 + llm 3"; "2x3": 2 lanes of 3 stages
std::string describe_split(const PlanShape& shape, const ModelSpec& model) {
  std::string text;
  for (int module = 0; module < model.num_modules(); ++module) {
    const ModuleShape& of = shape.modules[at(module)];
    text += module == 0 ? "" : shape.layout == ModuleLayout::kOwnLanes ? " + " : " | ";
    text += fmt::format("{} {}", module_name(model, module), of.stages);
    text += of.virtual_stages == 1 ? "" : fmt::format("x{}", of.virtual_stages);
  }
  return text;
}

// Tries shapes and keeps what became of them.
class SplitSearch {
 public:
  explicit SplitSearch(const LaneSplitRequest& request) : request_(request), scorer_(request) {}

  std::vector<LaneSplit> run() {
    if (request_.virtual_stages > 1) {
      try_all(list_virtual(request_));
    } else if (request_.schedule != "interleaved") {
      try_all(list_splits(request_));
    }
    if (request_.virtual_stages == kAutoVirtualStages) {
      try_rising();
    }
    if (splits_.empty()) {
      throw InvalidInput(
          fmt::format("on {} no module has lanes of its own and layers for 2 stages on each",
                      counted(request_.lanes, "lane")));
    }
    return std::move(splits_);
  }

 private:
  // Those with virtual stages are only of interest where they beat all others with them.
  void try_all(const std::vector<PlanShape>& shapes) {
    double tried = 0;
    for (const PlanShape& shape : shapes) {
      LaneSplit split;
      split.shape = shape;
      scorer_.score(split,
                    shape.has_virtual_stages() ? best_virtual_ns()
                                               : std::numeric_limits<std::int64_t>::max());
      splits_.push_back(std::move(split));
      if (request_.progress) {
        request_.progress(++tried / static_cast<double>(shapes.size()));
      }
    }
  }

  // The split without virtual stages that has as many lanes for each module.
  [[nodiscard]] std::int64_t plain_ns(const PlanShape& shape) const {
    const auto like = [&](const LaneSplit& split) {
      return split.reason.empty() && std::equal(shape.modules.begin(),
                                                shape.modules.end(),
                                                split.shape.modules.begin(),
                                                split.shape.modules.end(),
                                                [](const ModuleShape& a, const ModuleShape& b) {
                                                  return a.stages == b.stages &&
                                                         b.virtual_stages == 1;
                                                });
    };
    const auto found = std::find_if(splits_.begin(), splits_.end(), like);
    return found == splits_.end() ? std::numeric_limits<std::int64_t>::max() : found->mean_ns;
  }

  // Lanes that are fast without come first: they soon outrun the bounds of the others.
  void try_rising() {
    std::vector<PlanShape> lanes = own_lanes(request_);
    std::stable_sort(lanes.begin(), lanes.end(), [&](const PlanShape& a, const PlanShape& b) {
      return plain_ns(a) < plain_ns(b);
    });
    bool improved = true;
    for (int most = 2; improved || most <= kMostVirtualStages; ++most) {
      std::vector<PlanShape> shapes;
      for (const PlanShape& shape : lanes) {
        add_virtual(*request_.model, shape, 0, most, shapes);
      }
      if (shapes.empty()) {
        break;
      }
      const std::int64_t before = best_virtual_ns();
      try_all(shapes);
      improved = best_virtual_ns() < before;
    }
  }

  [[nodiscard]] std::int64_t best_virtual_ns() const {
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    for (const LaneSplit& split : splits_) {
      const bool counts = split.reason.empty() && split.shape.has_virtual_stages();
      best = counts ? std::min(best, split.mean_ns) : best;
    }
    return best;
  }

  const LaneSplitRequest& request_;
  Scorer scorer_;
  std::vector<LaneSplit> splits_;
};

}  // namespace

const LaneSplit* LaneSplitResult::best_of(bool virtual_stages) const {
  const auto found = std::find_if(splits.begin(), splits.end(), [&](const LaneSplit& split) {
    return split.reason.empty() && split.shape.has_virtual_stages() == virtual_stages;
  });
  return found == splits.end() ? nullptr : &*found;
}

LaneSplitResult plan_lane_split(const LaneSplitRequest& request) {
  check_request(request);
  LaneSplitResult result;
  result.splits = SplitSearch(request).run();
  std::stable_sort(
      result.splits.begin(), result.splits.end(), [](const LaneSplit& a, const LaneSplit& b) {
        if (a.reason.empty() != b.reason.empty()) {
          return a.reason.empty();
        }
        return a.reason.empty() && a.mean_ns < b.mean_ns;
      });
  if (!result.fits()) {
    result.reason = fmt::format("none of {} of {} fits; the first: {}: {}",
                                counted(std::ssize(result.splits), "split"),
                                counted(request.lanes, "lane"),
                                describe_split(result.splits.front().shape, *request.model),
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
    width = std::max(width, describe_split(split.shape, model).size());
  }
  std::string text = fmt::format("{:<{}}  {:>10}  {:>7}  {:>10}  {:>10}\n",
                                 "lanes",
                                 width,
                                 "step time",
                                 "to best",
                                 "bound",
                                 "peak");
  constexpr int kRows = 10;  // with virtual stages
  int others = 0;
  for (const LaneSplit& split : result.splits) {
    if (split.shape.has_virtual_stages() && ++others > kRows) {
      continue;
    }
    const std::string name = describe_split(split.shape, model);
    if (!split.reason.empty()) {
      text += fmt::format(
          "{:<{}}  {}: {}\n", name, width, split.slower ? "slower" : "does not fit", split.reason);
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
  if (others > kRows) {
    text += fmt::format("and {} more with virtual stages\n", others - kRows);
  }
  const LaneSplit* one = result.best_of(false);
  const LaneSplit* several = result.best_of(true);
  if (one != nullptr && several != nullptr) {
    const auto [first, second] =
        several->mean_ns < one->mean_ns ? std::pair(several, one) : std::pair(one, several);
    const auto name = [&](const LaneSplit& split) {
      return fmt::format("{} under {}", describe_split(split.shape, model), split.plan.schedule);
    };
    text += fmt::format("fastest {} virtual stages: {}; {}: {}, +{:.2f} %\n",
                        first == several ? "with" : "without",
                        name(*first),
                        first == several ? "without" : "with",
                        name(*second),
                        100 * static_cast<double>(second->mean_ns) /
                                static_cast<double>(std::max<std::int64_t>(1, first->mean_ns)) -
                            100);
  }
  if (!result.fits()) {
    text += result.reason + "\n";
  }
  return text;
}

}  // namespace entrain
