#include "entrain/core/report/plan_page.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>

#include <fmt/format.h>

#include "entrain/core/base/text.h"
#include "entrain/core/planner/plan_scorer.h"
#include "entrain/core/planner/recompute_levels.h"
#include "entrain/core/report/table.h"
#include "entrain/core/schedule/schedule.h"

namespace entrain {
namespace {

constexpr int kBar = 20;          // characters of a full bar
constexpr std::size_t kRows = 5;  // of a list
constexpr std::size_t kRunnersUp = 10;

std::string time_of(std::int64_t ns) {
  return format_duration(std::chrono::nanoseconds{ns});
}

std::string bar(double share) {
  const int filled = std::clamp(static_cast<int>(share * kBar + 0.5), 0, kBar);
  return std::string(static_cast<std::size_t>(filled), '#') +
         std::string(static_cast<std::size_t>(kBar - filled), '.');
}

std::string stages_on(const Plan& plan, const std::vector<StageRef>& lane) {
  std::vector<std::string> stages;
  for (const StageRef& ref : lane) {
    const ModulePlan& module = plan.modules[static_cast<std::size_t>(ref.module)];
    const LayerRange layers = module.stages[static_cast<std::size_t>(ref.stage)];
    const int recomputed = module.recomputed(ref.stage);
    stages.push_back(
        fmt::format("{} {} [{}, {})", module.name, ref.stage, layers.begin, layers.end) +
        (recomputed > 0 ? fmt::format(" {} recomputed", recomputed) : ""));
  }
  return join(stages);
}

std::string devices_on(const Plan& plan, const std::vector<StageRef>& lane) {
  const ModulePlan& module = plan.modules[static_cast<std::size_t>(lane.front().module)];
  std::string text = fmt::format("TP {}", module.tensor_parallel);
  return module.context_parallel == 1 ? text
                                      : text + fmt::format(" CP {}", module.context_parallel);
}

std::string memory_on(const PlanCandidate& plan, std::size_t lane, std::int64_t capacity) {
  const std::int64_t state = plan.lane_state_bytes[lane];
  const std::int64_t peak = plan.lane_peak_bytes[lane];
  std::string text = fmt::format("{} + {}", format_bytes(state), format_bytes(peak));
  if (capacity > 0) {
    text += fmt::format(" ({:.0f} %)",
                        100.0 * static_cast<double>(state + peak) / static_cast<double>(capacity));
  }
  return text;
}

std::string lanes_table(const PlanCandidate& best, std::int64_t capacity) {
  const Plan& plan = best.plan;
  const std::int64_t slowest = std::max<std::int64_t>(
      1, *std::max_element(best.lane_work_ns.begin(), best.lane_work_ns.end()));
  Table table({"  lane", "layers", "devices", "work", "of the slowest", "state + activations"});
  for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
    const auto work = static_cast<double>(best.lane_work_ns[lane]);
    table.add_row({fmt::format("  {}", lane),
                   stages_on(plan, plan.lanes[lane]),
                   devices_on(plan, plan.lanes[lane]),
                   time_of(best.lane_work_ns[lane]),
                   bar(work / static_cast<double>(slowest)),
                   memory_on(best, lane, capacity)});
  }
  return table.to_text() +
         "work: of a lane in a step; state: parameters, gradients and optimizer, with activations "
         "in "
         "bytes of one device\n";
}

// What recomputation costs, by module; empty where no layer is recomputed.
std::string recomputation(const PlanCandidate& best) {
  const Plan& plan = best.plan;
  if (!recomputes(plan)) {
    return "";
  }
  std::vector<std::string> parts;
  for (const ModulePlan& module : plan.modules) {
    if (recomputes(module)) {
      parts.push_back(
          fmt::format("{} of {} of {}",
                      std::accumulate(module.recompute.begin(), module.recompute.end(), 0),
                      counted(module.stages.back().end, "layer"),
                      module.name));
    }
  }
  const auto most = std::max_element(best.lane_recompute_ns.begin(), best.lane_recompute_ns.end());
  const auto lane = static_cast<std::size_t>(most - best.lane_recompute_ns.begin());
  return fmt::format(
      "recomputed in backward: {}; at most on lane {}: {} a step, {:.1f} % of "
      "its work\n",
      join(parts),
      lane,
      time_of(*most),
      100 * static_cast<double>(*most) /
          static_cast<double>(std::max<std::int64_t>(1, best.lane_work_ns[lane])));
}

// "; vision has 75 % of the devices and 72 % of their work, …" where modules have lanes of their
// own.
std::string shares(const PlanCandidate& best) {
  const Plan& plan = best.plan;
  if (best.config.layout != ModuleLayout::kOwnLanes) {
    return "; modules share lanes";
  }
  std::vector<double> devices(plan.modules.size(), 0);
  std::vector<double> work(plan.modules.size(), 0);
  double all_devices = 0;
  double all_work = 0;
  for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
    const auto module = static_cast<std::size_t>(plan.lanes[lane].front().module);
    const double width =
        plan.modules[module].tensor_parallel * plan.modules[module].context_parallel;
    // Device time: a lane's devices all work as long as it does.
    const double time = static_cast<double>(best.lane_work_ns[lane]) * width;
    devices[module] += width;
    work[module] += time;
    all_devices += width;
    all_work += time;
  }
  std::vector<std::string> parts;
  for (std::size_t module = 0; module < plan.modules.size(); ++module) {
    if (devices[module] > 0) {
      parts.push_back(fmt::format("{} has {:.0f} % of the devices and {:.0f} % of their work",
                                  plan.modules[module].name,
                                  100 * devices[module] / all_devices,
                                  all_work > 0 ? 100 * work[module] / all_work : 0.0));
    }
  }
  return "; " + join(parts);
}

// Memory checks on batches other than those used to choose the plan.
std::string further(const PlanSearchResult& result, const FurtherBatches& batches) {
  if (result.further_batches == 0) {
    return "";
  }
  const std::int64_t behind = batches.first + batches.in_row;
  std::string of =
      fmt::format("steps {} to {} of a run", format_count(batches.first), format_count(behind - 1));
  if (batches.count() > batches.in_row) {
    of += fmt::format(", and the most demanding of the {} behind", format_count(batches.screened));
  }
  if (result.further_batches < batches.count()) {
    of = fmt::format("the most demanding first, of {}: {}", batches.count(), of);
  }
  return fmt::format("  fits too     {:>10}  further batches ({}); no other is checked\n",
                     result.further_batches,
                     of);
}

// The plans that the lower bound holds for: "with …; under schedules …".
std::string restrictions(const PlanSearchRequest& request) {
  const SpaceOptions& space = request.space;
  std::vector<std::string> with;
  if (space.shared_lanes == SharedLanes::kNever) {
    with.emplace_back("no lanes shared by all modules (but a single one)");
  } else if (space.shared_lanes == SharedLanes::kOnly) {
    with.emplace_back("lanes that all modules share");
  }
  with.push_back(space.virtual_stages == kAutoVirtualStages
                     ? fmt::format("{} to {} stages of a module on a lane",
                                   space.virtual_only ? 2 : 1,
                                   kMostVirtualStages)
                     : counted(space.virtual_stages, "stage") + " of a module on a lane");
  if (!space.idle_devices) {
    with.emplace_back("no more idle devices than must be");
  }
  if (space.replicas > 0) {
    with.push_back(counted(space.replicas, "replica"));
  }
  if (request.recompute == RecomputeRule::kFull) {
    with.emplace_back("every layer recomputed");
  }
  return fmt::format(
      "with {}; under schedules {}",
      join(with),
      splits_backward(request.schedule) ? "with whole or split backwards" : "with whole backwards");
}

std::string certificate(const PlanSearchResult& result, const PlanSearchRequest& request) {
  const PlanCertificate& of = result.best().plan.certificate;
  std::string text = fmt::format(
      "certificate, over {} of {}\n"
      "  simulated    {:>10}  policy {}, schedule {}, {} a step\n"
      "  lower bound  {:>10}  of every plan of this cluster {}; whatever the assignment of these "
      "batches\n"
      "  ratio        {:>10.3f}\n"
      "  regret       {:>9.2f}%  that a new plan for every batch would gain, over the "
      "simulated\n",
      counted(std::ssize(request.batches), "batch"),
      counted(std::ssize(request.batches.front()), "sample"),
      time_of(result.best().mean_ns),
      request.policy,
      result.best().plan.schedule,
      request.score_evaluations,
      time_of(result.lower_bound_ns),
      restrictions(request),
      of.ratio,
      100 * of.dynamic_regret);
  if (of.b_min > 0) {
    text += fmt::format(
        "  b_min        {:>10}  samples from which batches need the same split of a "
        "replica's devices\n",
        format_count(of.b_min));
  }
  text += further(result, request.further);
  return text + "  " + proof_of(result) + "\n";
}

// In percent.
double margin(const PlanCandidate& best, std::int64_t mean_ns) {
  return 100.0 * (static_cast<double>(mean_ns) / static_cast<double>(best.mean_ns) - 1);
}

// What virtual stages gain or cost; empty where plans of one kind alone were simulated to the end.
std::string virtual_stages(const PlanSearchResult& result) {
  const PlanCandidate& best = result.best();
  const bool several = best.config.has_virtual_stages();
  const auto other =
      std::find_if(result.plans.begin(), result.plans.end(), [&](const PlanCandidate& plan) {
        return plan.config.has_virtual_stages() != several;
      });
  return other == result.plans.end()
             ? ""
             : fmt::format("fastest {} virtual stages, under {}; {}, under {}: +{:.2f} %\n",
                           several ? "with" : "without",
                           best.plan.schedule,
                           several ? "without" : "with",
                           other->plan.schedule,
                           margin(best, other->mean_ns));
}

std::string runners_up(const PlanSearchResult& result, const ModelSpec& model) {
  const std::vector<RunnerUp> others = ranked(result);
  std::string text = "runners-up\n";
  for (std::size_t i = 0; i < std::min(kRunnersUp, others.size()); ++i) {
    text += fmt::format("  {:+.2f} %  {}  {}\n",
                        100 * (others[i].ratio - 1),
                        how_far(others[i], result),
                        describe(*others[i].plan, model));
  }
  if (others.size() > kRunnersUp) {
    text += fmt::format("  and {} more\n", others.size() - kRunnersUp);
  }
  return others.empty() ? "" : text;
}

// Plans rejected only because of a further batch.
std::string missed(const PlanSearchResult& result, const ModelSpec& model) {
  std::string text;
  std::size_t count = 0;
  for (const PlanCandidate& candidate : result.no_fit) {
    if (candidate.further_step < 0) {
      continue;
    }
    if (++count <= kRows) {
      text += fmt::format("  {}\n    {}\n", describe(candidate, model), candidate.reason);
    }
  }
  if (count > kRows) {
    text += fmt::format("  and {} more\n", count - kRows);
  }
  return text.empty() ? "" : "set aside: no room on a further batch\n" + text;
}

std::string cause_of(const CutSummary& cut, const ModelSpec& model, RecomputeRule recompute) {
  switch (cut.cause) {
    case BoundCause::kMemory:
      return fmt::format("shapes of {}: state and the largest sample exceed a device{}",
                         module_name(model, cut.module),
                         recompute == RecomputeRule::kNever ? "" : ", every layer recomputed");
    case BoundCause::kShared:
      return "configurations: the work on shared lanes takes longer than the best plans";
    case BoundCause::kChain:
      return "configurations: one sample's forward and backward path takes longer than the best "
             "plans";
    case BoundCause::kWork:
      break;
  }
  if (cut.module < 0) {
    return "configurations: the slowest lane and the slowest optimizer take longer than the best "
           "plans";
  }
  return fmt::format(
      "shapes of {}: its work on the slowest lane of the best cut takes longer than "
      "the best plans",
      module_name(model, cut.module));
}

std::string cuts(const PlanSearchResult& result, const ModelSpec& model, RecomputeRule recompute) {
  std::string text =
      fmt::format("excluded by bounds, of {} shapes of modules (replicas, degrees, stages)\n",
                  format_count(result.shapes));
  for (const CutSummary& cut : result.cuts) {
    text += fmt::format("  {:>9}  {}", format_count(cut.count), cause_of(cut, model, recompute));
    text += cut.nearest.empty()
                ? "\n"
                : fmt::format("; nearest {}: {}\n", time_of(cut.nearest_ns), cut.nearest);
  }
  text += fmt::format(
      "  {:>9}  configurations left by these; of their plans, with and without recomputation, {} "
      "simulated, {} stopped on the way, {} not proven, {} did not fit; {} in all\n",
      format_count(result.configurations),
      result.plans.size(),
      result.stopped.size(),
      result.set_aside.size(),
      result.no_fit.size(),
      counted(result.simulated_steps, "step"));
  return text;
}

}  // namespace

std::string describe(const PlanCandidate& candidate, const ModelSpec& model) {
  const int layers = recomputed_layers(candidate.plan);
  return describe(candidate.config, model) +
         (layers == 0 ? "" : fmt::format(", {} recomputed", counted(layers, "layer"))) +
         (candidate.plan.shard_optimizer && candidate.plan.replicas > 1 ? ", sharded optimizer"
                                                                        : "");
}

std::vector<RunnerUp> ranked(const PlanSearchResult& result) {
  std::vector<RunnerUp> others;
  for (const std::vector<PlanCandidate>* list :
       {&result.plans, &result.stopped, &result.set_aside}) {
    for (const PlanCandidate& plan : *list) {
      if (&plan != &result.best()) {
        others.push_back({&plan,
                          plan.state == CandidateState::kSetAside
                              ? time_over(plan, result.best().steps)
                              : 1 + margin(result.best(), plan.mean_ns) / 100});
      }
    }
  }
  std::stable_sort(others.begin(), others.end(), [](const RunnerUp& a, const RunnerUp& b) {
    return a.ratio < b.ratio;
  });
  return others;
}

std::string how_far(const RunnerUp& other, const PlanSearchResult& result) {
  const std::string batches =
      fmt::format("{} of {} batches", other.plan->steps.size(), result.best().steps.size());
  switch (other.plan->state) {
    case CandidateState::kStopped:
      return fmt::format("at least, stopped after {}", batches);
    case CandidateState::kSetAside:
      return other.plan->gave_up ? fmt::format("or more on {}, given up: not proven", batches)
                                 : fmt::format("on {}, then set aside: not proven", batches);
    default:
      return fmt::format("on all {}", counted(std::ssize(result.best().steps), "batch"));
  }
}

std::string proof_of(const PlanSearchResult& result) {
  if (result.complete) {
    return "proven: everything that was not simulated is no faster than what is ranked here";
  }
  return fmt::format(
      "not proven: the budget of {} simulated steps left {} that may be faster, though none below "
      "{}, their own lower bound; give more with --simulations",
      result.simulated_steps,
      counted(result.left, "configuration"),
      time_of(result.left_bound_ns));
}

std::string plan_page(const PlanSearchResult& result,
                      const PlanSearchRequest& request,
                      const std::string& hint) {
  const ModelSpec& model = *request.model;
  const ClusterSpec& cluster = *request.cluster;
  if (!result.fits()) {
    return fmt::format("no plan fits '{}': {}\n", cluster.name, result.reason);
  }
  const PlanCandidate& best = result.best();
  const int used = devices_per_replica(best.config) * best.config.replicas;
  const int all = cluster.num_nodes * cluster.devices_per_node;
  std::string text = fmt::format(
      "{} a step on '{}': {}\n"
      "{} of {} used{}\n",
      time_of(best.mean_ns),
      cluster.name,
      describe(best, model),
      used,
      counted(all, "device"),
      shares(best));
  text += virtual_stages(result) + hint;
  text += fmt::format("\none replica, first lane to last\n{}\n",
                      lanes_table(best, cluster.memory_bytes));
  for (const std::string& part : {recomputation(best),
                                  certificate(result, request),
                                  runners_up(result, model),
                                  missed(result, model)}) {
    text += part.empty() ? "" : part + "\n";
  }
  return text + cuts(result, model, request.recompute);
}

std::string lanes_page(const Plan& plan) {
  std::string text = fmt::format("{}, {} each, schedule {}\n",
                                 counted(plan.replicas, "replica"),
                                 counted(plan.num_slots, "slot"),
                                 plan.schedule);
  for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
    text += fmt::format("  {:>4}  {}  {}\n",
                        lane,
                        stages_on(plan, plan.lanes[lane]),
                        devices_on(plan, plan.lanes[lane]));
  }
  return text;
}

std::string regret_page(const DynamicRegret& regret) {
  return fmt::format(
      "against re-planning for each of {} further batches at no cost of switching\n"
      "  this plan    {:>10}\n"
      "  re-planned   {:>10}  a regret of {:.2f} %{}\n"
      "  lower bound  {:>10}  under every plan of the cluster for each of these further batches: "
      "re-planning can gain {:.2f} % at most\n",
      regret.batches,
      time_of(regret.static_ns),
      time_of(regret.dynamic_ns),
      100 * regret.regret(),
      regret.complete ? "" : ", as far as the budget of each search reaches",
      time_of(regret.bound_ns),
      100 * regret.most());
}

std::string neighbours_page(const std::vector<PlanNeighbour>& neighbours,
                            const PlanCandidate& best,
                            const PlanSearchRequest& request) {
  std::size_t width = 0;
  for (const PlanNeighbour& neighbour : neighbours) {
    width = std::max(width, neighbour.change.size());
  }
  const auto batches = static_cast<std::int64_t>(request.batches.size());
  std::string text = "why not the neighbour\n";
  bool faster = false;
  for (const PlanNeighbour& neighbour : neighbours) {
    if (!neighbour.fits()) {
      text +=
          fmt::format("  {:<{}}  does not fit: {}\n", neighbour.change, width, neighbour.reason);
      continue;
    }
    const std::int64_t mean = neighbour.candidate->mean_ns;
    const std::int64_t bound = neighbour.bound.ns / batches;
    text += fmt::format("  {:<{}}  {:>10}  {:+.2f} %  {} (lower bound of this neighbour {}{})\n",
                        neighbour.change,
                        width,
                        time_of(mean),
                        margin(best, mean),
                        describe(*neighbour.candidate, *request.model),
                        time_of(bound),
                        bound >= best.mean_ns ? ", which alone is slower" : "");
    faster = faster || mean < best.mean_ns;
  }
  if (faster) {
    text +=
        "  a neighbour is faster: the search's budget ended before it; give more with "
        "--simulations\n";
  }
  return text;
}

}  // namespace entrain
