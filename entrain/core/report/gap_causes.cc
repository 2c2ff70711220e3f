#include "entrain/core/report/gap_causes.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/report/critical_path.h"
#include "entrain/core/report/event_table.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

nanoseconds time_of(OperationKind kind, const OperationTimes& times) {
  switch (kind) {
    case OperationKind::kForward:
      return times.forward;
    case OperationKind::kBackwardInput:
      return times.backward_input;
    case OperationKind::kBackwardWeight:
      return times.weight_half();
    default:
      return times.backward();
  }
}

class Accountant {
 public:
  Accountant(const Program& program, const Timeline& timeline, const StepCosts& costs)
      : program_(program), timeline_(timeline), costs_(costs), table_(program, timeline) {}

  GapCauses run(nanoseconds bound) {
    const std::vector<LaneAccount> accounts = lane_accounts(program_, timeline_);
    const LaneAccount& busiest = busiest_lane(accounts);
    result_.replica = busiest.replica;
    result_.lane = busiest.lane;
    add(GapCause::kFill, busiest.fill);
    add(GapCause::kDrain, busiest.drain);
    nanoseconds work{0};
    for (int replica = 0; replica < num_replicas(); ++replica) {
      work += work_of(replica, busiest.lane);
    }
    const nanoseconds shared = work / num_replicas();
    const nanoseconds own = work_of(busiest.replica, busiest.lane);
    add(GapCause::kUneven, std::max(own - shared, nanoseconds{0}));
    add(GapCause::kLaunches, busiest.busy() - own);
    add_waits();
    result_.in_bound = bound - std::min(own, shared) - busiest.reduction - busiest.optimizer;
    return result_;
  }

 private:
  [[nodiscard]] int num_replicas() const { return static_cast<int>(program_.replicas.size()); }

  void add(GapCause cause, nanoseconds time) { result_.time[at(static_cast<int>(cause))] += time; }

  // Of the slowest replica.
  [[nodiscard]] const LaneAccount& busiest_lane(const std::vector<LaneAccount>& accounts) const {
    const auto begin = accounts.begin() + slowest_replica(timeline_) * program_.num_lanes();
    return *std::ranges::max_element(begin, begin + program_.num_lanes(), {}, &LaneAccount::busy);
  }

  // Forward and backward without launch constants.
  [[nodiscard]] nanoseconds work_of(int replica, int lane) const {
    nanoseconds work{0};
    for (const TimelineEvent* event : table_.computes(replica, lane)) {
      const Operation& operation = table_.operation_of(*event);
      if (operation.unit.module >= 0) {
        work += event->finish - event->start - launch_of(operation);
      }
    }
    return work;
  }

  [[nodiscard]] nanoseconds launch_of(const Operation& operation) const {
    const StageCosts& stage =
        costs_.modules[at(operation.unit.module)].stages[at(operation.unit.stage)];
    return time_of(operation.kind, stage.launch);
  }

  void add_waits() {
    nanoseconds since{-1};
    for (const TimelineEvent* event : table_.computes(result_.replica, result_.lane)) {
      if (table_.operation_of(*event).unit.module < 0) {
        return;  // drain
      }
      if (since.count() >= 0) {
        add_wait(*event, since);
      }
      since = event->finish;
    }
  }

  void add_wait(const TimelineEvent& waiting, nanoseconds since) {
    nanoseconds until = waiting.start;
    for (const TimelineEvent* event = &waiting; until > since; until = event->start) {
      event = table_.before(*event);
      add(cause_of(*event), until - std::max(event->start, since));
    }
  }

  GapCause cause_of(const TimelineEvent& event) {
    if (event.category == EventCategory::kSend) {
      return GapCause::kLinks;
    }
    const Operation& operation = table_.operation_of(event);
    const Load load = load_of(event.replica, operation);
    const nanoseconds mean = mean_slot(event.replica, operation);
    if (load.largest > mean) {
      return GapCause::kOversized;
    }
    return 100 * load.sum > 105 * mean ? GapCause::kUneven : GapCause::kOrder;
  }

  struct Load {
    nanoseconds sum{0};
    nanoseconds largest{0};  // of one unit
  };

  [[nodiscard]] Load load_of(int replica, const Operation& operation) const {
    Load load;
    for (const WorkItem& item : group_of(program_.replicas[at(replica)], operation.unit).items) {
      const UnitCost cost = unit_cost(costs_, operation.unit.module, operation.unit.stage, item);
      const nanoseconds time = time_of(operation.kind, cost.time);
      load.sum += time;
      load.largest = std::max(load.largest, time);
    }
    return load;
  }

  // Of all slots of the module that hold anything.
  nanoseconds mean_slot(int replica, const Operation& operation) {
    const auto key =
        std::make_tuple(replica, operation.unit.module, operation.unit.stage, operation.kind);
    if (const auto known = means_.find(key); known != means_.end()) {
      return known->second;
    }
    nanoseconds sum{0};
    int slots = 0;
    const auto& of_module = program_.replicas[at(replica)].groups[at(operation.unit.module)];
    for (int slot = 0; slot < static_cast<int>(of_module.size()); ++slot) {
      slots += of_module[at(slot)].empty() ? 0 : 1;
      for (int group = 0; group < static_cast<int>(of_module[at(slot)].size()); ++group) {
        const UnitKey unit{operation.unit.module, operation.unit.stage, slot, group};
        sum += load_of(replica, {operation.kind, unit, -1}).sum;
      }
    }
    return means_[key] = sum / std::max(slots, 1);
  }

  const Program& program_;
  const Timeline& timeline_;
  const StepCosts& costs_;
  EventTable table_;
  std::map<std::tuple<int, int, int, OperationKind>, nanoseconds> means_;
  GapCauses result_;
};

}  // namespace

std::string_view name_of(GapCause cause) {
  constexpr std::array<std::string_view, kNumGapCauses> kCauses = {
      "fill", "drain", "oversized", "uneven", "order", "launches", "links"};
  return kCauses[static_cast<std::size_t>(cause)];
}

GapCauses gap_causes(const Program& program,
                     const Timeline& timeline,
                     const StepCosts& costs,
                     nanoseconds bound) {
  return Accountant(program, timeline, costs).run(bound);
}

std::string to_string(const GapCauses& causes, nanoseconds whole) {
  std::vector<std::pair<double, std::string_view>> shares;
  for (int i = 0; i < kNumGapCauses; ++i) {
    const auto cause = static_cast<GapCause>(i);
    shares.emplace_back(100.0 * static_cast<double>(causes.of(cause).count()) /
                            static_cast<double>(std::max<std::int64_t>(whole.count(), 1)),
                        name_of(cause));
  }
  std::stable_sort(
      shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [share, name] : shares) {
    if (share >= 0.05) {
      text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", name, share);
    }
  }
  return text.empty() ? "none" : text;
}

}  // namespace entrain
