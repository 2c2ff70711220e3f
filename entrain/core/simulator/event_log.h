// The events of a replay, in the order of a timeline.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/simulator/network.h"
#include "entrain/core/simulator/state.h"
#include "entrain/core/spec/program.h"
#include "entrain/core/spec/timeline.h"

namespace entrain::simulation {

class EventLog {
 public:
  explicit EventLog(bool enabled) : enabled_(enabled) {}

  [[nodiscard]] bool enabled() const { return enabled_; }

  void add(const ReplayLane& lane,
           int position,
           EventCategory category,
           std::int64_t start,
           std::int64_t finish) {
    if (enabled_) {
      events_.push_back({lane.replica,
                         lane.lane,
                         position,
                         category,
                         std::chrono::nanoseconds{start},
                         std::chrono::nanoseconds{finish}});
    }
  }

  // Every receive gets its send's times.
  // Throws  InvalidInput if a received message is never sent.
  void add_receives(const Program& program,
                    const StageGraph& stages,
                    const Links& links,
                    const std::vector<ReplayReplica>& replicas);

  // All events by replica, lane, operation and time; the log is empty afterwards.
  std::vector<TimelineEvent> take();

 private:
  bool enabled_;
  std::vector<TimelineEvent> events_;
};

}  // namespace entrain::simulation
