#include "entrain/core/simulator/simulator.h"

#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/simulator/barriers.h"
#include "entrain/core/simulator/deadlock.h"
#include "entrain/core/simulator/event_log.h"
#include "entrain/core/simulator/inputs.h"
#include "entrain/core/simulator/state.h"
#include "entrain/core/simulator/tables.h"

namespace entrain {
namespace {

using simulation::Barriers;
using simulation::EventLog;
using simulation::Inputs;
using simulation::kUnknown;
using simulation::LaneSet;
using simulation::LaneState;
using simulation::ReplicaState;
using simulation::StageTable;
using simulation::StuckLane;
using simulation::UnitTimes;
using simulation::UnitTotals;
using std::chrono::nanoseconds;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// Runs every lane as far as it goes, again and again from where a message or a barrier lets it on.
class Replay {
 public:
  Replay(const Program& program, const StepCosts& costs, bool events)
      : program_(program),
        costs_(costs),
        log_(events),
        stages_(program),
        inputs_(program, stages_),
        clips_({0, 1}, static_cast<int>(program.replicas.size()) * program.num_lanes()) {
    const int num_replicas = static_cast<int>(program.replicas.size());
    replicas_.reserve(at(num_replicas));
    lanes_.reserve(at(num_replicas) * program.lanes.size());
    for (int replica = 0; replica < num_replicas; ++replica) {
      replicas_.emplace_back(program, stages_, costs, replica);
      for (int lane = 0; lane < program.num_lanes(); ++lane) {
        LaneState& state = lanes_.emplace_back(replicas_.back().tables, replica, lane);
        for (const StageRef& ref : program.lanes[at(lane)]) {
          const StageCosts& stage = costs.modules[at(ref.module)].stages[at(ref.stage)];
          state.reduce += stage.reduce.count();
          state.optimizer += stage.optimizer.count();
        }
      }
    }
    for (int lane = 0; lane < program.num_lanes(); ++lane) {
      reduces_.emplace_back(LaneSet{lane, program.num_lanes()}, static_cast<int>(lanes_.size()));
    }
  }

  Timeline run() {
    // From the last lane down, so that the first is taken first.
    for (std::size_t i = lanes_.size(); i > 0; --i) {
      runnable_.push_back(static_cast<int>(i) - 1);
    }
    while (!runnable_.empty()) {
      LaneState& lane = lanes_[at(runnable_.back())];
      runnable_.pop_back();
      run_lane(lane);
    }
    check_done();
    return timeline();
  }

 private:
  void run_lane(LaneState& lane) {
    const std::vector<Operation>& list = program_.replicas[at(lane.replica)].lanes[at(lane.lane)];
    lane.waiting_for = nullptr;
    while (at(lane.position) < list.size() && step(lane, list[at(lane.position)])) {
      ++lane.position;
    }
  }

  // Whether the operation ran.
  bool step(LaneState& lane, const Operation& operation) {
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
        log_.add(
            lane, lane.position, EventCategory::kCompute, lane.time, lane.time + lane.optimizer);
        lane.time += lane.optimizer;
        return true;
      default:
        throw InvalidInput(fmt::format(
            "{}: the cost model has no {} yet", where(lane, operation), name_of(operation.kind)));
    }
  }

  // Starts at the later of the lane's and the inputs' time; returns the finish.
  std::int64_t compute(LaneState& lane, std::int64_t duration) {
    const std::int64_t start = std::max(lane.time, lane.inputs_ready);
    if (start > lane.time) {
      log_.add(lane, lane.position, EventCategory::kWait, lane.time, start);
    }
    log_.add(lane, lane.position, EventCategory::kCompute, start, start + duration);
    lane.time = start + duration;
    lane.finish = lane.time;
    lane.busy += duration;
    lane.inputs_seen = 0;
    lane.inputs_ready = 0;
    return lane.time;
  }

  bool forward(LaneState& lane, const UnitKey& key) {
    ReplicaState& replica = replicas_[at(lane.replica)];
    const int unit = replica.tables.unit_of(key);
    if (!inputs_.forward_ready(lane, replica, key, unit)) {
      return false;
    }
    replica.times[at(unit)].forward_finish = compute(lane, replica.tables.totals(unit).forward);
    lane.memory.forward(key, unit);
    return true;
  }

  bool backward(LaneState& lane, const UnitKey& key, bool whole) {
    ReplicaState& replica = replicas_[at(lane.replica)];
    const int unit = replica.tables.unit_of(key);
    if (!inputs_.gradient_ready(lane, replica, key, unit)) {
      return false;
    }
    const UnitTotals& totals = replica.tables.totals(unit);
    replica.times[at(unit)].gradient_finish =
        compute(lane, totals.backward_input + (whole ? totals.backward_weight : 0));
    if (whole) {
      lane.memory.backward(key, unit);
    } else {
      lane.memory.backward_input(key, unit);
    }
    return true;
  }

  bool backward_weight(LaneState& lane, const UnitKey& key) {
    ReplicaState& replica = replicas_[at(lane.replica)];
    const int unit = replica.tables.unit_of(key);
    if (replica.times[at(unit)].gradient_finish == kUnknown) {
      return false;
    }
    compute(lane, replica.tables.totals(unit).backward_weight);
    lane.memory.backward_weight(unit);
    return true;
  }

  [[nodiscard]] const Channel& channel_of(const LaneState& lane, const Operation& operation) const {
    const std::vector<Channel>& channels = program_.replicas[at(lane.replica)].channels;
    if (operation.channel < 0 || at(operation.channel) >= channels.size()) {
      throw InvalidInput(where(lane, operation) + ": no such channel");
    }
    return channels[at(operation.channel)];
  }

  void send(LaneState& lane, const Operation& operation) {
    ReplicaState& replica = replicas_[at(lane.replica)];
    const Channel& channel = channel_of(lane, operation);
    const UnitKey& key = operation.unit;
    const int unit = replica.tables.unit_of(key);
    if (channel.source_lane != lane.lane || channel.producer != StageRef{key.module, key.stage}) {
      throw InvalidInput(where(lane, operation) + ": the channel belongs to another edge");
    }
    UnitTimes& times = replica.times[at(unit)];
    if (!inputs_.produced(lane, replica, channel, key, unit)) {
      throw InvalidInput(where(lane, operation) + ": stands before what makes its message");
    }
    const std::int64_t start = std::max(lane.time, replica.channel_free[at(operation.channel)]);
    const std::int64_t arrival =
        start + transfer_time(costs_.link, replica.tables.totals(unit).output_bytes).count();
    replica.channel_free[at(operation.channel)] = arrival;
    log_.add(lane, lane.position, EventCategory::kSend, start, arrival);
    std::int64_t& slot = channel.gradient ? times.gradient_arrival : times.output_arrival;
    slot = arrival;
    last_finish_ = std::max(last_finish_, arrival);
    const int target = lane_index(lane.replica, channel.target_lane);
    if (lanes_[at(target)].waiting_for == &slot) {
      lanes_[at(target)].waiting_for = nullptr;
      runnable_.push_back(target);
    }
  }

  bool reduce(LaneState& lane) {
    const std::int64_t* latest = reduces_[at(lane.lane)].arrive(
        lane, lane_index(lane.replica, lane.lane), lane.num_reduced, runnable_);
    if (latest == nullptr) {
      return false;
    }
    wait_until(lane, *latest);
    log_.add(lane, lane.position, EventCategory::kCompute, lane.time, lane.time + lane.reduce);
    lane.time += lane.reduce;
    ++lane.num_reduced;
    return true;
  }

  bool clip(LaneState& lane) {
    const std::int64_t* latest =
        clips_.arrive(lane, lane_index(lane.replica, lane.lane), lane.num_clipped, runnable_);
    if (latest == nullptr) {
      return false;
    }
    wait_until(lane, *latest);
    ++lane.num_clipped;
    return true;
  }

  void wait_until(LaneState& lane, std::int64_t time) {
    if (time > lane.time) {
      log_.add(lane, lane.position, EventCategory::kWait, lane.time, time);
      lane.time = time;
    }
  }

  [[nodiscard]] int lane_index(int replica, int lane) const {
    return replica * program_.num_lanes() + lane;
  }

  [[nodiscard]] std::string where(const LaneState& lane, const Operation& operation) const {
    return fmt::format("replica {} lane {} operation {} ({})",
                       lane.replica,
                       lane.lane,
                       lane.position,
                       to_string(program_, operation));
  }

  void check_done() const {
    bool all_done = true;
    std::vector<std::vector<StuckLane>> stuck(replicas_.size());
    for (const LaneState& lane : lanes_) {
      const auto& list = program_.replicas[at(lane.replica)].lanes[at(lane.lane)];
      all_done = all_done && at(lane.position) == list.size();
      stuck[at(lane.replica)].push_back({lane.position, lane.at_barrier});
    }
    if (!all_done) {
      throw InvalidInput(simulation::describe_deadlock(program_, stages_, stuck));
    }
  }

  Timeline timeline() {
    Timeline result;
    result.lanes.resize(replicas_.size());
    for (const LaneState& lane : lanes_) {
      last_finish_ = std::max(last_finish_, lane.time);
      result.lanes[at(lane.replica)].push_back(
          {nanoseconds{lane.busy}, nanoseconds{lane.finish}, lane.memory.peak()});
    }
    result.makespan = nanoseconds{last_finish_};
    if (log_.enabled()) {
      log_.add_receives(program_, costs_, replicas_);
      result.events = log_.take();
    }
    return result;
  }

  const Program& program_;
  const StepCosts& costs_;
  EventLog log_;
  StageTable stages_;
  Inputs inputs_;
  std::vector<ReplicaState> replicas_;
  std::vector<LaneState> lanes_;  // [replica × lanes + lane]
  std::vector<int> runnable_;
  std::vector<Barriers> reduces_;  // [lane]: of all replicas' lane
  Barriers clips_;                 // of all lanes
  std::int64_t last_finish_ = 0;
};

}  // namespace

Timeline simulate(const Program& program, const StepCosts& costs, const SimulateOptions& options) {
  return Replay(program, costs, options.events).run();
}

}  // namespace entrain
