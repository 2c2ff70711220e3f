#include "entrain/core/simulator/simulator.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/simulator/deadlock.h"
#include "entrain/core/simulator/memory.h"
#include "entrain/core/simulator/tables.h"

namespace entrain {
namespace {

using simulation::LaneMemory;
using simulation::ReplicaTables;
using simulation::StageTable;
using simulation::StuckLane;
using simulation::UnitTotals;
using std::chrono::nanoseconds;

constexpr std::int64_t kUnknown = -1;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// Times in nanoseconds since the step's start; kUnknown until they are known.
struct UnitTimes {
  std::int64_t forward_finish = kUnknown;
  std::int64_t gradient_finish = kUnknown;   // of the backward, or of its input half
  std::int64_t output_arrival = kUnknown;    // of the unit's output on the next stage's lane
  std::int64_t gradient_arrival = kUnknown;  // of its output's gradient on the unit's lane
};

struct Barrier {
  int arrived = 0;
  std::int64_t latest = 0;
};

struct Lane {
  Lane(const ReplicaTables& tables, int replica_index, int lane_index)
      : replica(replica_index), lane(lane_index), memory(tables, lane_index) {}

  int replica;
  int lane;
  LaneMemory memory;
  int position = 0;
  std::int64_t time = 0;  // the last operation's finish
  std::int64_t busy = 0;
  std::int64_t finish = 0;
  // Inputs of the operation at `position` that have been looked at, and the latest of them.
  int inputs_seen = 0;
  std::int64_t inputs_ready = 0;
  const std::int64_t* waiting_for = nullptr;  // what the lane lacks
  bool at_barrier = false;
  int num_reduced = 0;
  int num_clipped = 0;
  std::int64_t reduce = 0;  // sums over the lane's stages
  std::int64_t optimizer = 0;
};

struct Replica {
  Replica(const Program& program, const StageTable& stages, const StepCosts& costs, int index)
      : tables(program, stages, costs, index),
        times(at(tables.num_units())),
        channel_free(program.replicas[at(index)].channels.size(), 0) {}

  ReplicaTables tables;
  std::vector<UnitTimes> times;            // [unit]
  std::vector<std::int64_t> channel_free;  // [channel]
};

// Runs every lane as far as it goes, again and again from where a message or a barrier lets it on.
class Replay {
 public:
  Replay(const Program& program, const StepCosts& costs, bool events)
      : program_(program), costs_(costs), events_(events), stages_(program) {
    const int num_replicas = static_cast<int>(program.replicas.size());
    replicas_.reserve(at(num_replicas));
    lanes_.reserve(at(num_replicas) * program.lanes.size());
    for (int replica = 0; replica < num_replicas; ++replica) {
      replicas_.emplace_back(program, stages_, costs, replica);
      for (int lane = 0; lane < program.num_lanes(); ++lane) {
        Lane& state = lanes_.emplace_back(replicas_.back().tables, replica, lane);
        for (const StageRef& ref : program.lanes[at(lane)]) {
          const StageCosts& stage = costs.modules[at(ref.module)].stages[at(ref.stage)];
          state.reduce += stage.reduce.count();
          state.optimizer += stage.optimizer.count();
        }
      }
    }
    reduces_.resize(program.lanes.size());
  }

  Timeline run() {
    // From the last lane down, so that the first is taken first.
    for (std::size_t i = lanes_.size(); i > 0; --i) {
      runnable_.push_back(static_cast<int>(i) - 1);
    }
    while (!runnable_.empty()) {
      Lane& lane = lanes_[at(runnable_.back())];
      runnable_.pop_back();
      run_lane(lane);
    }
    check_done();
    return timeline();
  }

 private:
  void run_lane(Lane& lane) {
    const std::vector<Operation>& list = program_.replicas[at(lane.replica)].lanes[at(lane.lane)];
    lane.waiting_for = nullptr;
    while (at(lane.position) < list.size() && step(lane, list[at(lane.position)])) {
      ++lane.position;
    }
  }

  // Whether the operation ran.
  bool step(Lane& lane, const Operation& operation) {
    switch (operation.kind) {
      case OperationKind::kForward:
        return forward(lane, operation.unit);
      case OperationKind::kBackward:
      case OperationKind::kBackwardInput:
        return backward(lane, operation.unit, operation.kind == OperationKind::kBackward);
      case OperationKind::kBackwardWeight:
        return backward_weight(lane, operation.unit);
      case OperationKind::kSend:
        send(lane, operation);
        return true;
      case OperationKind::kReceive:
        lane.memory.receive(channel_of(lane, operation),
                            replicas_[at(lane.replica)].tables.unit_of(operation.unit));
        return true;
      case OperationKind::kReduceGradients:
        return reduce(lane);
      case OperationKind::kClipNorm:
        return clip(lane);
      case OperationKind::kOptimizerStep:
        record(lane, EventCategory::kCompute, lane.time, lane.time + lane.optimizer);
        lane.time += lane.optimizer;
        return true;
      default:
        throw InvalidInput(fmt::format(
            "{}: the cost model has no {} yet", where(lane, operation), name_of(operation.kind)));
    }
  }

  // Looks at an input once; false while it is unknown.
  static bool take_input(Lane& lane, const std::int64_t& time) {
    if (time == kUnknown) {
      lane.waiting_for = &time;
      return false;
    }
    lane.inputs_ready = std::max(lane.inputs_ready, time);
    ++lane.inputs_seen;
    return true;
  }

  // Starts at the later of the lane's and the inputs' time; returns the finish.
  std::int64_t compute(Lane& lane, std::int64_t duration) {
    const std::int64_t start = std::max(lane.time, lane.inputs_ready);
    if (start > lane.time) {
      record(lane, EventCategory::kWait, lane.time, start);
    }
    record(lane, EventCategory::kCompute, start, start + duration);
    lane.time = start + duration;
    lane.finish = lane.time;
    lane.busy += duration;
    lane.inputs_seen = 0;
    lane.inputs_ready = 0;
    return lane.time;
  }

  bool forward(Lane& lane, const UnitKey& key) {
    Replica& replica = replicas_[at(lane.replica)];
    const int unit = replica.tables.unit_of(key);
    // Chunks follow each other on one lane: what stands behind can never come first.
    for (const int offset : replica.tables.earlier(unit)) {
      if (replica.times[at(unit + offset)].forward_finish == kUnknown) {
        return false;
      }
    }
    if (key.stage > 0) {
      const UnitTimes& before = replica.times[at(unit - 1)];
      if (!take_input(lane,
                      stages_.output_crosses(key.module, key.stage - 1) ? before.output_arrival
                                                                        : before.forward_finish)) {
        return false;
      }
    } else if (key.module == stages_.llm_module()) {
      const auto sources = replica.tables.serving(unit);
      for (std::size_t i = at(lane.inputs_seen); i < sources.size(); ++i) {
        const simulation::Serving& serving = sources[i];
        const UnitTimes& features = replica.times[at(serving.unit)];
        if (!take_input(lane,
                        serving.crosses ? features.output_arrival : features.forward_finish)) {
          return false;
        }
      }
    }
    replica.times[at(unit)].forward_finish = compute(lane, replica.tables.totals(unit).forward);
    lane.memory.forward(key, unit);
    return true;
  }

  bool backward(Lane& lane, const UnitKey& key, bool whole) {
    Replica& replica = replicas_[at(lane.replica)];
    const int unit = replica.tables.unit_of(key);
    UnitTimes& times = replica.times[at(unit)];
    if (times.forward_finish == kUnknown || !later_chunks_done(replica, unit) ||
        !gradient_ready(lane, replica, key, unit)) {
      return false;
    }
    const UnitTotals& totals = replica.tables.totals(unit);
    times.gradient_finish =
        compute(lane, totals.backward_input + (whole ? totals.backward_weight : 0));
    if (whole) {
      lane.memory.backward(key, unit);
    } else {
      lane.memory.backward_input(key, unit);
    }
    return true;
  }

  static bool later_chunks_done(const Replica& replica, int unit) {
    const auto later = replica.tables.later(unit);
    return std::none_of(later.begin(), later.end(), [&](int offset) {
      return replica.times[at(unit + offset)].gradient_finish == kUnknown;
    });
  }

  bool gradient_ready(Lane& lane, const Replica& replica, const UnitKey& key, int unit) {
    const bool last = key.stage + 1 == stages_.num_stages(key.module);
    if (last && key.module == stages_.llm_module()) {
      return true;
    }
    if (stages_.output_crosses(key.module, key.stage)) {
      return take_input(lane, replica.times[at(unit)].gradient_arrival);
    }
    if (!last) {
      return take_input(lane, replica.times[at(unit + 1)].gradient_finish);
    }
    // The LLM's first stage stands on this lane: all its backwards have to be behind us.
    return takers_done(lane, replica, key);
  }

  // Whether all first-stage LLM units that take an encoder unit's output have made its gradient.
  bool takers_done(const Lane& lane, const Replica& replica, const UnitKey& key) const {
    const Group& group =
        program_.replicas[at(lane.replica)].groups[at(key.module)][at(key.slot)][at(key.group)];
    for (std::size_t part = 0; part < group.llm_slots.size(); ++part) {
      if (replica.times[at(replica.tables.llm_unit(group.served(part)))].gradient_finish ==
          kUnknown) {
        return false;
      }
    }
    return true;
  }

  bool backward_weight(Lane& lane, const UnitKey& key) {
    Replica& replica = replicas_[at(lane.replica)];
    const int unit = replica.tables.unit_of(key);
    if (replica.times[at(unit)].gradient_finish == kUnknown) {
      return false;
    }
    compute(lane, replica.tables.totals(unit).backward_weight);
    lane.memory.backward_weight(unit);
    return true;
  }

  [[nodiscard]] const Channel& channel_of(const Lane& lane, const Operation& operation) const {
    const std::vector<Channel>& channels = program_.replicas[at(lane.replica)].channels;
    if (operation.channel < 0 || at(operation.channel) >= channels.size()) {
      throw InvalidInput(where(lane, operation) + ": no such channel");
    }
    return channels[at(operation.channel)];
  }

  void send(Lane& lane, const Operation& operation) {
    Replica& replica = replicas_[at(lane.replica)];
    const Channel& channel = channel_of(lane, operation);
    const UnitKey& key = operation.unit;
    const int unit = replica.tables.unit_of(key);
    if (channel.source_lane != lane.lane || channel.producer != StageRef{key.module, key.stage}) {
      throw InvalidInput(where(lane, operation) + ": the channel belongs to another edge");
    }
    UnitTimes& times = replica.times[at(unit)];
    if (!produced(lane, replica, channel, key, unit)) {
      throw InvalidInput(where(lane, operation) + ": stands before what makes its message");
    }
    const std::int64_t start = std::max(lane.time, replica.channel_free[at(operation.channel)]);
    const std::int64_t arrival =
        start + transfer_time(costs_.link, replica.tables.totals(unit).output_bytes).count();
    replica.channel_free[at(operation.channel)] = arrival;
    record(lane, EventCategory::kSend, start, arrival);
    std::int64_t& slot = channel.gradient ? times.gradient_arrival : times.output_arrival;
    slot = arrival;
    last_finish_ = std::max(last_finish_, arrival);
    const int target = lane_index(lane.replica, channel.target_lane);
    if (lanes_[at(target)].waiting_for == &slot) {
      lanes_[at(target)].waiting_for = nullptr;
      runnable_.push_back(target);
    }
  }

  bool produced(const Lane& lane,
                const Replica& replica,
                const Channel& channel,
                const UnitKey& key,
                int unit) const {
    if (!channel.gradient) {
      return replica.times[at(unit)].forward_finish != kUnknown;
    }
    if (key.stage + 1 < stages_.num_stages(key.module)) {
      return replica.times[at(unit + 1)].gradient_finish != kUnknown;
    }
    return takers_done(lane, replica, key);
  }

  bool reduce(Lane& lane) {
    const std::int64_t* latest = arrive(lane,
                                        reduces_[at(lane.lane)],
                                        lane.num_reduced,
                                        lane_index(0, lane.lane),
                                        program_.num_lanes());
    if (latest == nullptr) {
      return false;
    }
    wait_until(lane, *latest);
    record(lane, EventCategory::kCompute, lane.time, lane.time + lane.reduce);
    lane.time += lane.reduce;
    ++lane.num_reduced;
    return true;
  }

  bool clip(Lane& lane) {
    const std::int64_t* latest = arrive(lane, clips_, lane.num_clipped, 0, 1);
    if (latest == nullptr) {
      return false;
    }
    wait_until(lane, *latest);
    ++lane.num_clipped;
    return true;
  }

  // A barrier of the lanes first, first + step, … Its latest time once all have come, else nullptr;
  // the last one wakes the others.
  const std::int64_t* arrive(
      Lane& lane, std::vector<Barrier>& barriers, int ordinal, int first, int step) {
    if (barriers.size() <= at(ordinal)) {
      barriers.resize(at(ordinal) + 1);
    }
    Barrier& barrier = barriers[at(ordinal)];
    const int num_lanes = static_cast<int>(lanes_.size());
    const int needed = (num_lanes - first + step - 1) / step;
    if (!lane.at_barrier) {
      lane.at_barrier = true;
      barrier.latest = std::max(barrier.latest, lane.time);
      if (++barrier.arrived == needed) {
        for (int i = first; i < num_lanes; i += step) {
          if (i != lane_index(lane.replica, lane.lane)) {
            runnable_.push_back(i);
          }
        }
      }
    }
    if (barrier.arrived < needed) {
      return nullptr;
    }
    lane.at_barrier = false;
    return &barrier.latest;
  }

  void wait_until(Lane& lane, std::int64_t time) {
    if (time > lane.time) {
      record(lane, EventCategory::kWait, lane.time, time);
      lane.time = time;
    }
  }

  [[nodiscard]] int lane_index(int replica, int lane) const {
    return replica * program_.num_lanes() + lane;
  }

  [[nodiscard]] std::string where(const Lane& lane, const Operation& operation) const {
    return fmt::format("replica {} lane {} operation {} ({})",
                       lane.replica,
                       lane.lane,
                       lane.position,
                       to_string(program_, operation));
  }

  void record(const Lane& lane, EventCategory category, std::int64_t start, std::int64_t finish) {
    if (events_) {
      timeline_.events.push_back({lane.replica,
                                  lane.lane,
                                  lane.position,
                                  category,
                                  nanoseconds{start},
                                  nanoseconds{finish}});
    }
  }

  void check_done() const {
    bool all_done = true;
    std::vector<std::vector<StuckLane>> stuck(replicas_.size());
    for (const Lane& lane : lanes_) {
      const auto& list = program_.replicas[at(lane.replica)].lanes[at(lane.lane)];
      all_done = all_done && at(lane.position) == list.size();
      stuck[at(lane.replica)].push_back({lane.position, lane.at_barrier});
    }
    if (!all_done) {
      throw InvalidInput(simulation::describe_deadlock(program_, stages_, stuck));
    }
  }

  Timeline timeline() {
    timeline_.lanes.resize(replicas_.size());
    for (const Lane& lane : lanes_) {
      last_finish_ = std::max(last_finish_, lane.time);
      timeline_.lanes[at(lane.replica)].push_back(
          {nanoseconds{lane.busy}, nanoseconds{lane.finish}, lane.memory.peak()});
    }
    timeline_.makespan = nanoseconds{last_finish_};
    if (events_) {
      add_receives();
      std::sort(timeline_.events.begin(),
                timeline_.events.end(),
                [](const TimelineEvent& a, const TimelineEvent& b) {
                  return std::tie(a.replica, a.lane, a.operation, a.start, a.finish) <
                         std::tie(b.replica, b.lane, b.operation, b.start, b.finish);
                });
    }
    return std::move(timeline_);
  }

  void add_receives() {
    for (const Lane& lane : lanes_) {
      const Replica& replica = replicas_[at(lane.replica)];
      const ReplicaProgram& part = program_.replicas[at(lane.replica)];
      const std::vector<Operation>& list = part.lanes[at(lane.lane)];
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].kind != OperationKind::kReceive) {
          continue;
        }
        const int unit = replica.tables.unit_of(list[i].unit);
        const UnitTimes& times = replica.times[at(unit)];
        const std::int64_t arrival = part.channels[at(list[i].channel)].gradient
                                         ? times.gradient_arrival
                                         : times.output_arrival;
        if (arrival == kUnknown) {
          throw InvalidInput(fmt::format("replica {} lane {} operation {} ({}): nothing sends it",
                                         lane.replica,
                                         lane.lane,
                                         i,
                                         to_string(program_, list[i])));
        }
        const nanoseconds transfer =
            transfer_time(costs_.link, replica.tables.totals(unit).output_bytes);
        timeline_.events.push_back({lane.replica,
                                    lane.lane,
                                    static_cast<int>(i),
                                    EventCategory::kReceive,
                                    nanoseconds{arrival} - transfer,
                                    nanoseconds{arrival}});
      }
    }
  }

  const Program& program_;
  const StepCosts& costs_;
  bool events_;
  StageTable stages_;
  std::vector<Replica> replicas_;
  std::vector<Lane> lanes_;  // [replica × lanes + lane]
  std::vector<int> runnable_;
  std::vector<std::vector<Barrier>> reduces_;  // [lane][ordinal]
  std::vector<Barrier> clips_;                 // [ordinal]
  std::int64_t last_finish_ = 0;
  Timeline timeline_;
};

}  // namespace

Timeline simulate(const Program& program, const StepCosts& costs, const SimulateOptions& options) {
  return Replay(program, costs, options.events).run();
}

}  // namespace entrain
