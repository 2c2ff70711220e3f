#include "entrain/core/report/critical_path.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// Events by lane, and sends by channel.
class EventTable {
 public:
  EventTable(const Program& program, const Timeline& timeline)
      : program_(program),
        computes_(program.replicas.size() * program.lanes.size()),
        receives_(computes_.size()) {
    ENTRAIN_INVARIANT(!timeline.events.empty(), "a critical path needs a timeline with events");
    for (const TimelineEvent& event : timeline.events) {
      if (event.category == EventCategory::kCompute) {
        computes_[lane_of(event)].push_back(&event);
      } else if (event.category == EventCategory::kReceive) {
        receives_[lane_of(event)].push_back(&event);
      } else if (event.category == EventCategory::kSend) {
        sends_[{event.replica, operation_of(event).channel}].push_back(&event);
      }
    }
  }

  [[nodiscard]] const Operation& operation_of(const TimelineEvent& event) const {
    return program_.replicas[at(event.replica)].lanes[at(event.lane)][at(event.operation)];
  }
  [[nodiscard]] const std::vector<const TimelineEvent*>& computes(int replica, int lane) const {
    return computes_[at(replica) * program_.lanes.size() + at(lane)];
  }

  // What the event had to wait for last; nullptr at the step's start.
  [[nodiscard]] const TimelineEvent* before(const TimelineEvent& event) const {
    if (event.start.count() == 0) {
      return nullptr;
    }
    const TimelineEvent* on_lane = compute_before(event.replica, event.lane, event.operation);
    if (on_lane != nullptr && on_lane->finish == event.start) {
      return on_lane;
    }
    const TimelineEvent* other = nullptr;
    if (event.category == EventCategory::kSend) {
      other = send_before(event);
    } else if (operation_of(event).unit.module >= 0) {
      other = message_of(event);
    } else {
      other = last_arrival(event);
    }
    ENTRAIN_INVARIANT(
        other != nullptr,
        fmt::format("nothing ends where {} begins", to_string(program_, operation_of(event))));
    return other;
  }

  // The receive whose arrival let a compute operation start; nullptr when none did.
  [[nodiscard]] const TimelineEvent* receive_of(const TimelineEvent& event) const {
    const Operation& operation = operation_of(event);
    const bool forward = operation.kind == OperationKind::kForward;
    std::vector<UnitKey> inputs = {operation.unit};
    if (forward) {
      inputs = forward_inputs(program_, event.replica, operation.unit);
    }
    for (const TimelineEvent* receive : receives_[lane_of(event)]) {
      const Operation& message = operation_of(*receive);
      if (receive->finish == event.start && receive->operation < event.operation &&
          channel_of(*receive).gradient != forward &&
          std::find(inputs.begin(), inputs.end(), message.unit) != inputs.end()) {
        return receive;
      }
    }
    return nullptr;
  }

 private:
  [[nodiscard]] std::size_t lane_of(const TimelineEvent& event) const {
    return at(event.replica) * program_.lanes.size() + at(event.lane);
  }
  [[nodiscard]] const Channel& channel_of(const TimelineEvent& event) const {
    return program_.replicas[at(event.replica)].channels[at(operation_of(event).channel)];
  }

  [[nodiscard]] const TimelineEvent* compute_before(int replica, int lane, int operation) const {
    const std::vector<const TimelineEvent*>& list = computes(replica, lane);
    const auto next = std::lower_bound(
        list.begin(), list.end(), operation, [](const TimelineEvent* e, int value) {
          return e->operation < value;
        });
    return next == list.begin() ? nullptr : *(next - 1);
  }

  [[nodiscard]] const TimelineEvent* send_before(const TimelineEvent& event) const {
    for (const TimelineEvent* send : sends_.at({event.replica, operation_of(event).channel})) {
      if (send != &event && send->finish == event.start && send->operation < event.operation) {
        return send;
      }
    }
    return nullptr;
  }

  [[nodiscard]] const TimelineEvent* message_of(const TimelineEvent& event) const {
    const TimelineEvent* receive = receive_of(event);
    if (receive == nullptr) {
      return nullptr;
    }
    const Operation& message = operation_of(*receive);
    for (const TimelineEvent* send : sends_.at({event.replica, message.channel})) {
      if (operation_of(*send).unit == message.unit) {
        return send;
      }
    }
    return nullptr;
  }

  // A step-wide operation waits for other lanes: the one that came last with what stands before
  // such operations (a reduction too, for those behind it).
  [[nodiscard]] const TimelineEvent* last_arrival(const TimelineEvent& event) const {
    const bool reduction = operation_of(event).kind == OperationKind::kReduceGradients;
    for (int replica = 0; replica < static_cast<int>(program_.replicas.size()); ++replica) {
      for (int lane = 0; lane < program_.num_lanes(); ++lane) {
        if (reduction && lane != event.lane) {
          continue;
        }
        for (const TimelineEvent* other : computes(replica, lane)) {
          const Operation& operation = operation_of(*other);
          const bool before = operation.unit.module >= 0 ||
                              (!reduction && operation.kind == OperationKind::kReduceGradients);
          if (before && other->finish == event.start) {
            return other;
          }
        }
      }
    }
    return nullptr;
  }

  const Program& program_;
  std::vector<std::vector<const TimelineEvent*>> computes_;  // [replica × lanes + lane]
  std::vector<std::vector<const TimelineEvent*>> receives_;
  std::map<std::pair<int, int>, std::vector<const TimelineEvent*>> sends_;  // (replica, channel)
};

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
    path.push_back(*event);
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

std::string stages_of_lane(const Program& program, int lane) {
  std::string text;
  for (const StageRef& ref : program.lanes[at(lane)]) {
    const std::string module = at(ref.module) < program.module_names.size()
                                   ? program.module_names[at(ref.module)]
                                   : fmt::format("module {}", ref.module);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", module, ref.stage);
  }
  return text;
}

}  // namespace entrain
