#include "entrain/core/report/event_table.h"

#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
EventTable::EventTable(const Program& program, const Timeline& timeline)
    : program_(program),
      computes_(program.replicas.size() * program.lanes.size()),
      receives_(computes_.size()) {
  ENTRAIN_INVARIANT(!timeline.events.empty(), "an event table needs a timeline with events");
  for (const TimelineEvent& event : timeline.events) {
    const std::size_t lane = index_of(event.replica, event.lane);
    if (event.category == EventCategory::kCompute) {
      computes_[lane].push_back(&event);
    } else if (event.category == EventCategory::kReceive) {
      receives_[lane].push_back(&event);
    } else if (event.category == EventCategory::kSend) {
      sends_[{event.replica, operation_of(event).channel}].push_back(&event);
    }
  }
}

const TimelineEvent* EventTable::before(const TimelineEvent& event) const {
  if (event.start.count() == 0) {
    return nullptr;
  }
  const TimelineEvent* on_lane = compute_before(event.replica, event.lane, event.operation);
  if (on_lane != nullptr && on_lane->finish == event.start) {
    return on_lane;
  }
  const TimelineEvent* other = nullptr;
  if (event.category == EventCategory::kSend) {
    other = is_bucket(event) ? bucket_before(event) : send_before(event);
  } else if (operation_of(event).unit.module >= 0) {
    other = message_of(event);
  } else {
    other = last_arrival(event);
  }
  ENTRAIN_INVARIANT(
      other != nullptr,
      fmt::format("nothing ends when {} begins", to_string(program_, operation_of(event))));
  return other;
}

const TimelineEvent* EventTable::receive_of(const TimelineEvent& event) const {
  const Operation& operation = operation_of(event);
  const bool forward = operation.kind == OperationKind::kForward;
  std::vector<UnitKey> inputs = {operation.unit};
  if (forward) {
    inputs = forward_inputs(program_, event.replica, operation.unit);
  }
  for (const TimelineEvent* receive : receives_[index_of(event.replica, event.lane)]) {
    const Operation& message = operation_of(*receive);
    if (receive->finish == event.start && receive->operation < event.operation &&
        channel_of(*receive).gradient != forward &&
        std::find(inputs.begin(), inputs.end(), message.unit) != inputs.end()) {
      return receive;
    }
  }
  return nullptr;
}

const Channel& EventTable::channel_of(const TimelineEvent& event) const {
  return program_.replicas[at(event.replica)].channels[at(operation_of(event).channel)];
}

const TimelineEvent* EventTable::compute_before(int replica, int lane, int operation) const {
  const std::vector<const TimelineEvent*>& list = computes(replica, lane);
  const auto next =
      std::lower_bound(list.begin(), list.end(), operation, [](const TimelineEvent* e, int value) {
        return e->operation < value;
      });
  return next == list.begin() ? nullptr : *(next - 1);
}

const TimelineEvent* EventTable::send_before(const TimelineEvent& event) const {
  for (const TimelineEvent* send : sends_.at({event.replica, operation_of(event).channel})) {
    if (send != &event && send->finish == event.start && send->operation < event.operation) {
      return send;
    }
  }
  return nullptr;
}

const TimelineEvent* EventTable::message_of(const TimelineEvent& event) const {
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

bool EventTable::is_bucket(const TimelineEvent& event) const {
  return event.category == EventCategory::kSend &&
         operation_of(event).kind == OperationKind::kReduceGradients;
}

const TimelineEvent* EventTable::bucket_before(const TimelineEvent& event) const {
  const TimelineEvent* before = nullptr;
  for (const TimelineEvent* bucket : sends_.at({event.replica, -1})) {
    if (bucket == &event) {
      break;
    }
    if (bucket->lane == event.lane && bucket->finish == event.start) {
      before = bucket;
    }
  }
  for (int replica = 0; before == nullptr && replica < static_cast<int>(program_.replicas.size());
       ++replica) {
    for (const TimelineEvent* maker : computes(replica, event.lane)) {
      if (maker->start < event.start && event.start <= maker->finish) {
        before = maker;
      }
    }
  }
  return before;
}

// A step-wide operation waits for other lanes: the last one to finish its operations before the
// step-wide ones (a reduction too, for those after it).
const TimelineEvent* EventTable::last_arrival(const TimelineEvent& event) const {
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
  for (const auto& [channel, sends] : sends_) {
    for (const TimelineEvent* send : sends) {
      if (is_bucket(*send) && send->finish == event.start) {
        return send;
      }
    }
  }
  return nullptr;
}

}  // namespace entrain
