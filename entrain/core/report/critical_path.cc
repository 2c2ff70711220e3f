#include "entrain/core/report/critical_path.h"

#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/report/event_table.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

// Adds a wait that ends at `start` to what it was for.
void add_wait(const EventTable& table,
              const Program& program,
              const TimelineEvent& event,
              nanoseconds since,
              bool first,
              LaneAccount& account) {
  const nanoseconds wait = event.start - since;
  const Operation& operation = table.operation_of(event);
  if (operation.unit.module < 0) {
    account.drain += wait;
    return;
  }
  if (wait.count() > 0) {
    if (const TimelineEvent* receive = table.receive_of(event)) {
      account.transfer += event.start - std::max(receive->start, since);
    }
  }
  if (first) {
    account.fill += wait;
  } else if (operation.kind != OperationKind::kForward) {
    account.gradient += wait;
  } else if (operation.unit.module == program.llm_module() && operation.unit.stage == 0) {
    account.features += wait;
  } else {
    account.activation += wait;
  }
}

void add_work(const Operation& operation, nanoseconds time, LaneAccount& account) {
  switch (operation.kind) {
    case OperationKind::kForward:
      account.forward += time;
      break;
    case OperationKind::kReduceGradients:
      account.reduction += time;
      break;
    case OperationKind::kOptimizerStep:
    case OperationKind::kGatherParameters:
      account.optimizer += time;
      break;
    default:
      account.backward += time;
  }
}

}  // namespace

std::vector<TimelineEvent> critical_path(const Program& program, const Timeline& timeline) {
  const EventTable table(program, timeline);
  const TimelineEvent* event = nullptr;
  for (const TimelineEvent& candidate : timeline.events) {
    const bool travels = candidate.category == EventCategory::kSend;
    if ((travels || candidate.category == EventCategory::kCompute) &&
        candidate.finish == timeline.makespan &&
        (event == nullptr || event->category == EventCategory::kSend)) {
      event = &candidate;
    }
  }
  std::vector<TimelineEvent> path;
  for (; event != nullptr; event = table.before(*event)) {
    TimelineEvent link = *event;
    if (!path.empty()) {  // the operation may still run when its first bucket of gradients is sent
      link.finish = std::min(link.finish, path.back().start);
    }
    path.push_back(link);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<LaneAccount> lane_accounts(const Program& program, const Timeline& timeline) {
  const EventTable table(program, timeline);
  std::vector<LaneAccount> accounts;
  for (int replica = 0; replica < static_cast<int>(program.replicas.size()); ++replica) {
    for (int lane = 0; lane < program.num_lanes(); ++lane) {
      LaneAccount& account = accounts.emplace_back();
      account.replica = replica;
      account.lane = lane;
      nanoseconds since{0};
      bool first = true;
      for (const TimelineEvent* event : table.computes(replica, lane)) {
        add_wait(table, program, *event, since, first, account);
        add_work(table.operation_of(*event), event->finish - event->start, account);
        since = event->finish;
        first = false;
      }
      account.drain += timeline.makespan - since;
    }
  }
  return accounts;
}

int slowest_replica(const Timeline& timeline) {
  const auto finish_of = [](const std::vector<LaneUsage>& lanes) {
    return std::ranges::max(lanes, {}, &LaneUsage::finish).finish;
  };
  return static_cast<int>(std::ranges::max_element(timeline.lanes, {}, finish_of) -
                          timeline.lanes.begin());
}

std::string module_name(const Program& program, int module) {
  return at(module) < program.module_names.size() ? program.module_names[at(module)]
                                                  : fmt::format("module {}", module);
}

std::string stages_of_lane(const Program& program, int lane) {
  std::string text;
  for (const StageRef& ref : program.lanes[at(lane)]) {
    text += fmt::format(
        "{}{} {}", text.empty() ? "" : ", ", module_name(program, ref.module), ref.stage);
  }
  return text;
}

}  // namespace entrain
