#include "entrain/core/simulator/event_log.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain::simulation {

using std::chrono::nanoseconds;

void EventLog::add_receives(const Program& program,
                            const StageGraph& stages,
                            const Links& links,
                            const std::vector<ReplayReplica>& replicas) {
  for (std::size_t replica = 0; replica < replicas.size(); ++replica) {
    const ReplicaProgram& part = program.replicas[replica];
    for (std::size_t lane = 0; lane < part.lanes.size(); ++lane) {
      const std::vector<Operation>& list = part.lanes[lane];
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].kind != OperationKind::kReceive) {
          continue;
        }
        const ReplayReplica& state = replicas[replica];
        const UnitKey& key = list[i].unit;
        const GraphGroup& group = state.graph->group(state.graph->checked_number(stages, key));
        const UnitTimes& times =
            state.times[static_cast<std::size_t>(group.first_unit + key.stage)];
        const Channel& channel = part.channels[static_cast<std::size_t>(list[i].channel)];
        const std::int64_t arrival =
            channel.gradient ? times.gradient_arrival : times.output_arrival;
        if (arrival == kUnknown) {
          throw InvalidInput(fmt::format("replica {} lane {} operation {} ({}): nothing sends it",
                                         replica,
                                         lane,
                                         i,
                                         to_string(program, list[i])));
        }
        const LinkSpec& link = links.of(static_cast<int>(replica), list[i].channel).spec;
        const GraphUnit& unit = state.graph->cost(group, stages.number(key.module, key.stage));
        const nanoseconds transfer = transfer_time(link, unit.output_bytes);
        events_.push_back({static_cast<int>(replica),
                           static_cast<int>(lane),
                           static_cast<int>(i),
                           EventCategory::kReceive,
                           nanoseconds{arrival} - transfer,
                           nanoseconds{arrival}});
      }
    }
  }
}

std::vector<TimelineEvent> EventLog::take() {
  std::sort(events_.begin(), events_.end(), [](const TimelineEvent& a, const TimelineEvent& b) {
    return std::tie(a.replica, a.lane, a.operation, a.start, a.finish, a.category) <
           std::tie(b.replica, b.lane, b.operation, b.start, b.finish, b.category);
  });
  return std::exchange(events_, {});
}

}  // namespace entrain::simulation
