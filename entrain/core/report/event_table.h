// The events of a simulated step, each with the event it waited for.
//
// Read first: EventTable::before(). The critical path, lane accounts and the causes of a gap
// are computed from it.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "entrain/core/spec/program.h"
#include "entrain/core/spec/timeline.h"

namespace entrain {

class EventTable {
 public:
  // Requires  a timeline with events that simulate() made of this program; both outlive the table.
  EventTable(const Program& program, const Timeline& timeline);

  [[nodiscard]] const Operation& operation_of(const TimelineEvent& event) const {
    return program_.replicas[static_cast<std::size_t>(event.replica)]
        .lanes[static_cast<std::size_t>(event.lane)][static_cast<std::size_t>(event.operation)];
  }

  // Compute events of a lane in the order in which they ran.
  [[nodiscard]] const std::vector<const TimelineEvent*>& computes(int replica, int lane) const {
    return computes_[index_of(replica, lane)];
  }

  // The last dependency of a compute or send event: it ends when this one begins. If there are
  // several, one on its own lane. nullptr at the step's start. A bucket of gradients may begin
  // while the operation that computes them still runs.
  [[nodiscard]] const TimelineEvent* before(const TimelineEvent& event) const;

  // The receive whose arrival let a compute operation start; nullptr if none did.
  [[nodiscard]] const TimelineEvent* receive_of(const TimelineEvent& event) const;

 private:
  [[nodiscard]] std::size_t index_of(int replica, int lane) const {
    return static_cast<std::size_t>(replica) * program_.lanes.size() +
           static_cast<std::size_t>(lane);
  }
  [[nodiscard]] const Channel& channel_of(const TimelineEvent& event) const;
  [[nodiscard]] const TimelineEvent* compute_before(int replica, int lane, int operation) const;
  [[nodiscard]] const TimelineEvent* send_before(const TimelineEvent& event) const;
  [[nodiscard]] bool is_bucket(const TimelineEvent& event) const;
  [[nodiscard]] const TimelineEvent* bucket_before(const TimelineEvent& event) const;
  [[nodiscard]] const TimelineEvent* message_of(const TimelineEvent& event) const;
  [[nodiscard]] const TimelineEvent* last_arrival(const TimelineEvent& event) const;

  const Program& program_;
  std::vector<std::vector<const TimelineEvent*>> computes_;  // [replica × lanes + lane]
  std::vector<std::vector<const TimelineEvent*>> receives_;
  std::map<std::pair<int, int>, std::vector<const TimelineEvent*>> sends_;  // (replica, channel)
};

}  // namespace entrain
