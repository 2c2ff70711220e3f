#include "entrain/core/report/step_view.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/planner/work_times.h"
#include "entrain/core/report/critical_path.h"
#include "entrain/core/report/gap_causes.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

// What a page reads: numbers, since there are many.
enum Kind { kForwardKind, kBackwardKind, kInputKind, kWeightKind, kOptimizerKind, kOther, kMerged };
enum Wait {
  kNone,
  kFillWait,
  kFeatures,
  kActivation,
  kGradient,
  kOtherWait,
  kDrainWait,
  kDataWait
};

Kind kind_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::kForward:
      return kForwardKind;
    case OperationKind::kBackward:
      return kBackwardKind;
    case OperationKind::kBackwardInput:
      return kInputKind;
    case OperationKind::kBackwardWeight:
      return kWeightKind;
    case OperationKind::kOptimizerStep:
      return kOptimizerKind;
    default:
      return kOther;
  }
}

// One timeline, with the units that its operations work on.
class TimelineDrawing {
 public:
  TimelineDrawing(const StepViewRequest& request,
                  const Timeline& timeline,
                  std::int64_t most_operations)
      : request_(request), program_(*request.program), timeline_(timeline) {
    std::int64_t computes = 0;
    of_lane_.resize(program_.replicas.size() * at(program_.num_lanes()));
    for (const TimelineEvent& event : timeline.events) {
      if (event.category == EventCategory::kCompute) {
        of_lane_[lane_of(event)].push_back(&event);
        ++computes;
      } else if (event.category == EventCategory::kWait) {
        waited_[{lane_of(event), event.operation}] += event.finish - event.start;
      }
    }
    for (auto& lane : of_lane_) {
      std::stable_sort(lane.begin(), lane.end(), [](const auto* a, const auto* b) {
        return a->start < b->start;
      });
    }
    merges_ = computes > most_operations;
    // So many blocks a lane, as a screen can show and as the page may hold.
    const std::int64_t blocks =
        std::clamp<std::int64_t>(most_operations / std::ssize(of_lane_), 200, 4000);
    block_ = timeline.makespan / blocks;
    computes_ = computes;
  }

  Json draw(const std::string& label, const std::vector<TimelineEvent>& path) {
    const auto memory = memory_timeline(program_, *request_.costs, timeline_);
    Json lanes = Json::array();
    for (std::size_t i = 0; i < of_lane_.size(); ++i) {
      const int replica = static_cast<int>(i) / program_.num_lanes();
      const int lane = static_cast<int>(i) % program_.num_lanes();
      lanes.push_back({{"replica", replica},
                       {"lane", lane},
                       {"name", stages_of_lane(program_, lane)},
                       {"events", draw_lane(of_lane_[i])},
                       {"memory", draw_memory(memory[at(replica)][at(lane)])},
                       {"limit_bytes", limit_of(lane)}});
    }
    Json result = {{"label", label}, {"makespan_ns", timeline_.makespan.count()}};
    result["thinned"] =
        merges_
            ? Json(fmt::format("{} operations; short ones of a lane that follow one another are "
                               "drawn as one, {} in all",
                               format_count(computes_),
                               format_count(drawn_)))
            : Json();
    result["modules"] = program_.module_names;
    result["samples"] = *request_.sample_ids;
    result["units"] = units_;
    result["lanes"] = std::move(lanes);
    result["path"] = draw_path(path);
    return result;
  }

 private:
  [[nodiscard]] std::size_t lane_of(const TimelineEvent& event) const {
    return at(event.replica) * at(program_.num_lanes()) + at(event.lane);
  }
  [[nodiscard]] const Operation& operation_of(const TimelineEvent& event) const {
    return program_.replicas[at(event.replica)].lanes[at(event.lane)][at(event.operation)];
  }
  [[nodiscard]] Json limit_of(int lane) const {
    const std::int64_t bytes = request_.plan->limits.bytes_of(lane);
    return bytes > 0 ? Json(bytes) : Json();
  }

  // Why the lane did nothing for `gap` before an operation: by its kind, and whether it waited for
  // its inputs. Samples are all that a stage without another before it waits for.
  [[nodiscard]] Wait wait_of(const TimelineEvent& event, nanoseconds gap, bool first) const {
    const Operation& operation = operation_of(event);
    const UnitKey& unit = operation.unit;
    const bool has_features = unit.module == program_.llm_module() && unit.module > 0;
    if (operation.kind == OperationKind::kForward && unit.stage == 0 && !has_features) {
      const auto waited = waited_.find({lane_of(event), event.operation});
      return waited != waited_.end() && 2 * waited->second > gap ? kDataWait : kOtherWait;
    }
    if (first) {
      return kFillWait;
    }
    switch (operation.kind) {
      case OperationKind::kForward:
        return unit.stage > 0 ? kActivation : kFeatures;
      case OperationKind::kBackward:
      case OperationKind::kBackwardInput:
        return kGradient;
      case OperationKind::kBackwardWeight:
        return kOtherWait;
      default:
        return kDrainWait;  // what ends the step
    }
  }

  Json draw_lane(const std::vector<const TimelineEvent*>& events) {
    std::vector<int> kinds;
    std::vector<const TimelineEvent*> drawn;  // null where several are one
    std::vector<int> waits;
    std::vector<std::int64_t> gaps;
    std::vector<std::int64_t> durations;
    nanoseconds end{0};
    nanoseconds begin{0};  // of the last that is drawn
    for (const TimelineEvent* event : events) {
      const Operation& operation = operation_of(*event);
      if (merges_ && !kinds.empty() && event->finish - begin <= block_) {
        kinds.back() = kMerged;
        drawn.back() = nullptr;
        durations.back() += (event->finish - end).count();
      } else {
        const nanoseconds gap = std::max(nanoseconds{0}, event->start - end);
        begin = end + gap;
        kinds.push_back(kind_of(operation.kind));
        drawn.push_back(event);
        waits.push_back(gap.count() > 0 ? wait_of(*event, gap, kinds.size() == 1) : kNone);
        gaps.push_back(gap.count());
        durations.push_back(std::max<std::int64_t>(0, (event->finish - begin).count()));
      }
      places_[event] = kinds.size() - 1;
      end = begin + nanoseconds(durations.back());
    }
    drawn_ += std::ssize(kinds);
    std::vector<int> units;
    for (const TimelineEvent* event : drawn) {
      units.push_back(event == nullptr ? -1 : unit_of(event->replica, operation_of(*event).unit));
    }
    return {
        {"kind", kinds}, {"unit", units}, {"gap_ns", gaps}, {"dur_ns", durations}, {"wait", waits}};
  }

  // Of steps at one time, or within a block, the largest.
  [[nodiscard]] Json draw_memory(const std::vector<MemoryStep>& steps) const {
    if (steps.empty()) {
      return nullptr;
    }
    std::vector<std::int64_t> times;
    std::vector<std::int64_t> bytes;
    for (const MemoryStep& step : steps) {
      if (!times.empty() && (times.back() == step.time.count() ||
                             (merges_ && step.time.count() - times.back() <= block_.count()))) {
        bytes.back() = std::max(bytes.back(), step.bytes);
        continue;
      }
      times.push_back(step.time.count());
      bytes.push_back(step.bytes);
    }
    return {{"time_ns", times}, {"bytes", bytes}};
  }

  int unit_of(int replica, const UnitKey& unit) {
    if (unit.module < 0) {
      return -1;
    }
    const auto [found, fresh] =
        numbers_.try_emplace({replica, unit}, static_cast<int>(numbers_.size()));
    if (fresh) {
      const Group& group = group_of(program_.replicas[at(replica)], unit);
      units_["module"].push_back(unit.module);
      units_["stage"].push_back(unit.stage);
      units_["slot"].push_back(unit.slot);
      std::vector<int> part = group.llm_slots;
      part.erase(std::unique(part.begin(), part.end()), part.end());
      units_["part"].push_back(part);
      std::vector<int> samples;
      std::int64_t tokens = 0;
      for (const WorkItem& item : group.items) {
        if (samples.empty() || samples.back() != item.sample) {
          samples.push_back(item.sample);
        }
        tokens += item.is_chunk() ? item.token_end - item.token_begin
                                  : request_.costs->modules[at(unit.module)]
                                        .tokens[at(request_.costs->unit_of(unit.module, item))];
      }
      units_["samples"].push_back(samples);
      units_["tokens"].push_back(tokens);
    }
    return found->second;
  }

  // Operations of the path, each once; messages between them are seen by their lanes.
  [[nodiscard]] Json draw_path(const std::vector<TimelineEvent>& path) const {
    std::map<std::pair<std::size_t, int>, std::size_t> drawn;  // [lane, operation]
    for (const auto& [event, place] : places_) {
      drawn[{lane_of(*event), event->operation}] = place;
    }
    Json result = Json::array();
    for (const TimelineEvent& event : path) {
      const auto found = drawn.find({lane_of(event), event.operation});
      if (event.category == EventCategory::kCompute && found != drawn.end()) {
        Json place = {lane_of(event), found->second};
        if (result.empty() || result.back() != place) {
          result.push_back(std::move(place));
        }
      }
    }
    return result;
  }

  const StepViewRequest& request_;
  const Program& program_;
  const Timeline& timeline_;
  std::vector<std::vector<const TimelineEvent*>> of_lane_;     // compute events, as they ran
  std::map<std::pair<std::size_t, int>, nanoseconds> waited_;  // [lane, operation] for inputs
  std::map<const TimelineEvent*, std::size_t> places_;         // as drawn, in their lane
  std::map<std::pair<int, UnitKey>, int> numbers_;             // of units, by replica
  Json units_ = {{"module", Json::array()},
                 {"stage", Json::array()},
                 {"slot", Json::array()},
                 {"part", Json::array()},
                 {"samples", Json::array()},
                 {"tokens", Json::array()}};
  bool merges_ = false;
  nanoseconds block_{0};  // operations of a lane within it are drawn as one, if at all
  std::int64_t computes_ = 0;
  std::int64_t drawn_ = 0;
};

// Time of the replicas' operations by module, and by slot and module.
Json balance_of(const Program& program, const Timeline& timeline) {
  const std::size_t modules = program.num_stages.size();
  std::vector<std::vector<std::int64_t>> replicas(program.replicas.size(),
                                                  std::vector<std::int64_t>(modules));
  std::vector<std::vector<std::vector<std::int64_t>>> slots;
  for (const ReplicaProgram& replica : program.replicas) {
    slots.emplace_back(replica.groups.back().size(), std::vector<std::int64_t>(modules));
  }
  for (const TimelineEvent& event : timeline.events) {
    const UnitKey& unit =
        program.replicas[at(event.replica)].lanes[at(event.lane)][at(event.operation)].unit;
    if (event.category == EventCategory::kCompute && unit.module >= 0) {
      const std::int64_t time = (event.finish - event.start).count();
      replicas[at(event.replica)][at(unit.module)] += time;
      slots[at(event.replica)][at(unit.slot)][at(unit.module)] += time;
    }
  }
  return {{"modules", program.module_names}, {"replicas", replicas}, {"slots", slots}};
}

Json lanes_of(const Program& program, const std::vector<LaneAccount>& accounts) {
  Json lanes = Json::array();
  for (const LaneAccount& account : accounts) {
    lanes.push_back({{"replica", account.replica},
                     {"lane", account.lane},
                     {"stages", stages_of_lane(program, account.lane)},
                     {"forward_ns", account.forward.count()},
                     {"backward_ns", account.backward.count()},
                     {"fill_ns", account.fill.count()},
                     {"features_ns", account.features.count()},
                     {"activation_ns", account.activation.count()},
                     {"gradient_ns", account.gradient.count()},
                     {"drain_ns", account.drain.count()},
                     {"reduction_ns", account.reduction.count()},
                     {"optimizer_ns", account.optimizer.count()}});
  }
  return lanes;
}

// Overlapped reductions have no causes of their own (gap_causes.h).
Json gap_of(const StepViewRequest& request) {
  if (request.bound.count() <= 0 || request.costs->reduce_buckets > 0) {
    return nullptr;
  }
  const GapCauses causes =
      gap_causes(*request.program, *request.predicted, *request.costs, request.bound);
  Json list = Json::array();
  for (int cause = 0; cause < kNumGapCauses; ++cause) {
    list.push_back(
        {{"cause", name_of(static_cast<GapCause>(cause))}, {"ns", causes.time[at(cause)].count()}});
  }
  return {{"step_ns", request.predicted->makespan.count()},
          {"bound_ns", request.bound.count()},
          {"in_bound_ns", causes.in_bound.count()},
          {"replica", causes.replica},
          {"lane", causes.lane},
          {"causes", list}};
}

// ", whose sample 'x' is 1.8 slots long": of the LLM, where one is longer than a mean slot by a
// fifth; else empty.
std::string heaviest_of(const StepViewRequest& request, int replica) {
  const Program& program = *request.program;
  const int llm = program.llm_module();
  const std::vector<std::int64_t> work = work_times(*request.costs)[at(llm)];
  std::set<int> samples;
  std::int64_t slots = 0;
  for (const std::vector<Group>& slot : program.replicas[at(replica)].groups[at(llm)]) {
    slots += slot.empty() ? 0 : 1;
    for (const Group& group : slot) {
      for (const WorkItem& item : group.items) {
        samples.insert(item.sample);
      }
    }
  }
  std::int64_t sum = 0;
  int heaviest = -1;
  for (const int sample : samples) {
    sum += work[at(sample)];
    heaviest = heaviest < 0 || work[at(sample)] > work[at(heaviest)] ? sample : heaviest;
  }
  if (sum == 0) {
    return "";
  }
  const double of_mean = static_cast<double>(work[at(heaviest)]) * static_cast<double>(slots) /
                         static_cast<double>(sum);
  return of_mean < 1.2 ? ""
                       : fmt::format(", whose sample '{}' is {:.1f} slots long",
                                     request.sample_ids->at(at(heaviest)),
                                     of_mean);
}

}  // namespace

std::vector<std::string> headline_of(const StepViewRequest& request) {
  const std::vector<LaneAccount> accounts = lane_accounts(*request.program, *request.predicted);
  LaneAccount sum;
  for (const LaneAccount& account : accounts) {
    sum.forward += account.forward;
    sum.backward += account.backward;
    sum.fill += account.fill;
    sum.features += account.features;
    sum.activation += account.activation;
    sum.gradient += account.gradient;
    sum.drain += account.drain;
    sum.reduction += account.reduction;
    sum.optimizer += account.optimizer;
  }
  const int slowest = slowest_replica(*request.predicted);
  const std::string behind =
      request.program->replicas.size() > 1 ? fmt::format(" behind replica {}", slowest) : "";
  const std::array<std::pair<nanoseconds, std::string>, 7> parts = {{
      {sum.fill, "waiting for the first work (fill)"},
      {sum.features, "waiting for the encoders' outputs"},
      {sum.activation, "waiting for the stage before"},
      {sum.gradient, "waiting for gradients"},
      {sum.drain, concat("drain", behind, heaviest_of(request, slowest))},
      {sum.reduction, "summing gradients over replicas"},
      {sum.optimizer, "the optimizer"},
  }};
  const auto largest = std::max_element(
      parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const double whole = static_cast<double>(request.predicted->makespan.count()) *
                       static_cast<double>(accounts.size());
  const auto share = [&](nanoseconds time) {
    return whole > 0 ? 100 * static_cast<double>(time.count()) / whole : 0.0;
  };
  std::vector<std::string> result = {
      fmt::format("{}{:.0f} % of the lanes' time is arithmetic; {:.0f} % is {}.",
                  request.measured == nullptr ? "" : "Predicted: ",
                  share(sum.busy()),
                  share(largest->first),
                  largest->second)};
  if (request.bound.count() > 0) {
    result.push_back(fmt::format(
        "The step is predicted to take {}, {:.2f} times its lower bound of {} (over all "
        "assignments and orders on these lanes{}).",
        format_duration(request.predicted->makespan),
        static_cast<double>(request.predicted->makespan.count()) /
            static_cast<double>(request.bound.count()),
        format_duration(request.bound),
        splits_backward(request.program->schedule) ? "" : " with whole backwards"));
  }
  if (request.measured != nullptr && request.predicted->makespan.count() > 0) {
    result.push_back(fmt::format(
        "Measured it took {}, {:.2f} times the prediction; {:.0f} % of its lanes' time was "
        "arithmetic.",
        format_duration(request.measured->makespan),
        static_cast<double>(request.measured->makespan.count()) /
            static_cast<double>(request.predicted->makespan.count()),
        100 * (1 - bubble_fraction(*request.measured))));
  }
  return result;
}

Json step_view(const StepViewRequest& request, std::int64_t most_operations) {
  ENTRAIN_INVARIANT(request.plan != nullptr && request.costs != nullptr &&
                        request.program != nullptr && request.predicted != nullptr &&
                        request.sample_ids != nullptr,
                    "a view of a step needs plan, costs, program, timeline and ids");
  Json timelines = Json::array();
  timelines.push_back(TimelineDrawing(request, *request.predicted, most_operations)
                          .draw("predicted", critical_path(*request.program, *request.predicted)));
  if (request.measured != nullptr) {
    timelines.push_back(
        TimelineDrawing(request, *request.measured, most_operations).draw("measured", {}));
  }
  Json facts = Json::array();
  const auto fact = [&](const char* name, const std::string& value) {
    facts.push_back({name, value});
  };
  fact("step", std::to_string(request.step));
  fact("replicas x lanes",
       fmt::format("{} x {}", request.program->replicas.size(), request.program->num_lanes()));
  fact("schedule", request.program->schedule);
  fact("samples", format_count(std::ssize(*request.sample_ids)));
  return {
      {"version", kStepViewVersion},
      {"step", request.step},
      {"headline", headline_of(request)},
      {"facts", facts},
      {"timelines", timelines},
      {"gap", gap_of(request)},
      {"balance", balance_of(*request.program, *request.predicted)},
      {"lanes", lanes_of(*request.program, lane_accounts(*request.program, *request.predicted))}};
}

}  // namespace entrain
