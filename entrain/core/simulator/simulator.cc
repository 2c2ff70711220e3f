#include "entrain/core/simulator/simulator.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/simulator/barriers.h"
#include "entrain/core/simulator/buckets.h"
#include "entrain/core/simulator/deadlock.h"
#include "entrain/core/simulator/event_log.h"
#include "entrain/core/simulator/inputs.h"
#include "entrain/core/simulator/state.h"

namespace entrain {
namespace {

using simulation::Barriers;
using simulation::Bucket;
using simulation::Buckets;
using simulation::EventLog;
using simulation::Inputs;
using simulation::kUnknown;
using simulation::LaneSet;
using simulation::Links;
using simulation::ReplayLane;
using simulation::ReplayReplica;
using simulation::StuckLane;
using simulation::UnitRef;
using simulation::UnitTimes;
using std::chrono::nanoseconds;

// A send that waits for a link which it shares with other lanes.
struct Request {
  std::int64_t asked = 0;
  int lane = 0;      // index of all replicas' lanes
  int position = 0;  // in the lane's list
  UnitRef ref{};     // of the message
};

struct LaterRequest {
  bool operator()(const Request& a, const Request& b) const {
    return std::tie(a.asked, a.lane, a.position) > std::tie(b.asked, b.lane, b.position);
  }
};

// Runs every lane as far as it goes, again and again from where a message or a barrier lets it on.
// When no lane can continue, the earliest request for a shared link gets it: no later one can be
// earlier, since all that is still unknown happens after an answer to a request.
class Replay {
 public:
  Replay(const Program& program,
         const StepGraph& graph,
         const StepCosts& costs,
         const SimulateOptions& options)
      : program_(program),
        stages_(graph.stages),
        blocking_sends_(options.blocking_sends),
        stop_after_(options.stop_after.count() > 0 ? options.stop_after.count() : kNever),
        log_(options.events),
        inputs_(stages_),
        buckets_(program, stages_, costs, options.reduce_buckets.value_or(costs.reduce_buckets)),
        clips_({0, 1}, static_cast<int>(program.replicas.size()) * program.num_lanes()) {
    const int num_replicas = static_cast<int>(program.replicas.size());
    replicas_.reserve(at(num_replicas));
    lanes_.reserve(at(num_replicas) * program.lanes.size());
    for (int replica = 0; replica < num_replicas; ++replica) {
      ReplayReplica& of = replicas_.emplace_back(stages_, graph.replicas[at(replica)]);
      for (int lane = 0; lane < program.num_lanes(); ++lane) {
        ReplayLane& state =
            lanes_.emplace_back(ReplayLane{.replica = replica,
                                           .lane = lane,
                                           .state = &of,
                                           .clock = &of.clock.lane(lane),
                                           .list = &program.replicas[at(replica)].lanes[at(lane)]});
        for (const StageRef& ref : program.lanes[at(lane)]) {
          const StageCosts& stage = costs.modules[at(ref.module)].stages[at(ref.stage)];
          state.reduce += buckets_.enabled() ? 0 : stage.reduce.count();
          state.optimizer += stage.optimizer.count();
        }
      }
    }
    links_ = Links(program, costs, options.network, options.sharing);
    for (int lane = 0; lane < program.num_lanes(); ++lane) {
      reduces_.emplace_back(LaneSet{lane, program.num_lanes()}, static_cast<int>(lanes_.size()));
    }
    if (stop_after_ != kNever) {
      for (ReplayLane& lane : lanes_) {
        lane.left = work_of(lane);
        check_time(lane);
      }
    }
  }

  Timeline run() {
    // From the last lane down, so that the first is taken first.
    for (std::size_t i = lanes_.size(); i > 0; --i) {
      runnable_.push_back(static_cast<int>(i) - 1);
    }
    while (!stopped_) {
      while (!runnable_.empty()) {
        ReplayLane& lane = lanes_[at(runnable_.back())];
        runnable_.pop_back();
        run_lane(lane);
      }
      if (requests_.empty()) {
        break;
      }
      grant_earliest();
    }
    if (stopped_) {
      return {.makespan = nanoseconds{last_finish_}, .lanes = {}, .events = {}, .stopped = true};
    }
    check_done();
    return timeline();
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  void run_lane(ReplayLane& lane) {
    const Operation* const begin = lane.list->data();
    const auto size = static_cast<int>(lane.list->size());
    lane.waiting_for = nullptr;
    while (!stopped_ && lane.position < size && step(lane, begin[lane.position])) {
      ++lane.position;
    }
  }

  // What a lane's whole list keeps it busy with; sends are left out.
  [[nodiscard]] std::int64_t work_of(const ReplayLane& lane) const {
    std::int64_t work = 0;
    for (const Operation& operation : *lane.list) {
      switch (operation.kind) {
        case OperationKind::kForward:
          work += cost_of(lane, operation.unit).forward;
          break;
        case OperationKind::kBackward:
          work += cost_of(lane, operation.unit).backward();
          break;
        case OperationKind::kBackwardInput:
          work += cost_of(lane, operation.unit).backward_input;
          break;
        case OperationKind::kBackwardWeight:
          work += cost_of(lane, operation.unit).weight_half();
          break;
        case OperationKind::kReduceGradients:
          work += lane.reduce;
          break;
        case OperationKind::kOptimizerStep:
          work += lane.optimizer;
          break;
        default:
          break;
      }
    }
    return work;
  }

  // Throws  InvalidInput for a unit that the replica does not have.
  [[nodiscard]] UnitRef ref_of(const ReplayLane& lane, const UnitKey& key) const {
    const ReplicaGraph& graph = *lane.state->graph;
    const int group = graph.checked_number(stages_, key);
    return {group, stages_.number(key.module, key.stage), graph.unit(group, key.stage)};
  }
  // Likewise for one whose stage is on another lane.
  [[nodiscard]] UnitRef own_ref(const ReplayLane& lane, const UnitKey& key) const {
    const UnitRef ref = ref_of(lane, key);
    if (stages_.stages[at(ref.stage)].lane != lane.lane) {
      refuse(lane, fmt::format("its stage is on lane {}", stages_.stages[at(ref.stage)].lane));
    }
    return ref;
  }
  [[nodiscard]] const GraphUnit& cost_of(const ReplayLane& lane, const UnitRef& ref) const {
    const ReplicaGraph& graph = *lane.state->graph;
    return graph.cost(graph.group(ref.group), ref.stage);
  }
  [[nodiscard]] const GraphUnit& cost_of(const ReplayLane& lane, const UnitKey& key) const {
    return cost_of(lane, ref_of(lane, key));
  }

  // Lets a lane's time pass without work.
  void advance(ReplayLane& lane, std::int64_t time) {
    lane.clock->time = time;
    check_time(lane);
  }
  void work(ReplayLane& lane, std::int64_t start, std::int64_t duration) {
    lane.clock->time = start + duration;
    lane.left -= duration;
    check_time(lane);
  }
  // Stops once the lane cannot end in time. Without a limit `left` is never above zero.
  void check_time(const ReplayLane& lane) { check_time(lane.clock->time + lane.left); }
  void check_time(std::int64_t earliest_end) {
    if (earliest_end > stop_after_) {
      stopped_ = true;
      last_finish_ = std::max(last_finish_, earliest_end);
    }
  }

  // Whether the operation ran.
  bool step(ReplayLane& lane, const Operation& operation) {
    switch (operation.kind) {
      case OperationKind::kForward:
        return forward(lane, operation.unit);
      case OperationKind::kBackward:
      case OperationKind::kBackwardInput:
        return backward(lane, operation.unit, operation.kind == OperationKind::kBackward);
      case OperationKind::kBackwardWeight:
        return backward_weight(lane, operation.unit);
      case OperationKind::kSend:
        return send(lane, operation);
      case OperationKind::kReceive:
        receive(lane, operation);
        return true;
      case OperationKind::kReduceGradients:
        return reduce(lane);
      case OperationKind::kClipNorm:
        return clip(lane);
      case OperationKind::kOptimizerStep:
        log_.add(lane,
                 lane.position,
                 EventCategory::kCompute,
                 lane.clock->time,
                 lane.clock->time + lane.optimizer);
        work(lane, lane.clock->time, lane.optimizer);
        return true;
      case OperationKind::kGatherParameters:
        return true;  // its time is in the optimizer's
      default:
        refuse(lane, fmt::format("the cost model has no {} yet", name_of(operation.kind)));
    }
  }

  // When the lane's next compute operation starts: at the later of the lane's and the inputs' time.
  std::int64_t start_of(ReplayLane& lane) {
    const std::int64_t start = std::max(lane.clock->time, lane.inputs_ready);
    if (start > lane.clock->time) {
      log_.add(lane, lane.position, EventCategory::kWait, lane.clock->time, start);
    }
    return start;
  }
  // What the clock has just run.
  void computed(ReplayLane& lane, std::int64_t duration) {
    const std::int64_t finish = lane.clock->time;
    log_.add(lane, lane.position, EventCategory::kCompute, finish - duration, finish);
    lane.left -= duration;
    check_time(lane);
    lane.finish = finish;
    lane.busy += duration;
    lane.inputs_seen = 0;
    lane.inputs_ready = 0;
  }

  bool forward(ReplayLane& lane, const UnitKey& key) {
    ReplayReplica& replica = *lane.state;
    const UnitRef ref = own_ref(lane, key);
    if (!inputs_.forward_ready(lane, replica, ref)) {
      return false;
    }
    computed(lane, replica.clock.forward(replica.clock.unit(ref.stage, ref.group), start_of(lane)));
    replica.times[at(ref.unit)].forward_finish = lane.finish;
    return true;
  }

  bool backward(ReplayLane& lane, const UnitKey& key, bool whole) {
    ReplayReplica& replica = *lane.state;
    const UnitRef ref = own_ref(lane, key);
    if (!inputs_.gradient_ready(lane, replica, ref)) {
      return false;
    }
    const std::int64_t duration =
        replica.clock.backward(replica.clock.unit(ref.stage, ref.group), !whole, start_of(lane));
    computed(lane, duration);
    replica.times[at(ref.unit)].gradient_finish = lane.finish;
    if (whole) {
      made_weight_gradients(lane, key, duration);
    }
    return true;
  }

  bool backward_weight(ReplayLane& lane, const UnitKey& key) {
    ReplayReplica& replica = *lane.state;
    const UnitRef ref = own_ref(lane, key);
    if (replica.times[at(ref.unit)].gradient_finish == kUnknown) {
      return false;
    }
    const std::int64_t duration =
        replica.clock.backward_weight(replica.clock.unit(ref.stage, ref.group), start_of(lane));
    computed(lane, duration);
    made_weight_gradients(lane, key, duration);
    return true;
  }

  // By the operation that has just run.
  void made_weight_gradients(const ReplayLane& lane, const UnitKey& key, std::int64_t duration) {
    if (buckets_.enabled()) {
      buckets_.made(
          lane.replica, key.module, key.stage, lane.clock->time - duration, lane.clock->time);
    }
  }

  [[nodiscard]] const Channel& channel_of(const ReplayLane& lane,
                                          const Operation& operation) const {
    const std::vector<Channel>& channels = program_.replicas[at(lane.replica)].channels;
    if (operation.channel < 0 || at(operation.channel) >= channels.size()) {
      refuse(lane, "no such channel");
    }
    return channels[at(operation.channel)];
  }

  void receive(const ReplayLane& lane, const Operation& operation) {
    ReplicaClock& clock = lane.state->clock;
    const Channel& channel = channel_of(lane, operation);
    const bool features = clock.carries_features(channel);
    clock.receive(channel, features ? ref_of(lane, operation.unit).group : -1);
  }

  // Whether the lane may continue.
  bool send(ReplayLane& lane, const Operation& operation) {
    const ReplayReplica& replica = *lane.state;
    const Channel& channel = channel_of(lane, operation);
    const UnitKey& key = operation.unit;
    const UnitRef ref = ref_of(lane, key);
    if (channel.source_lane != lane.lane || channel.producer != StageRef{key.module, key.stage}) {
      refuse(lane, "the channel belongs to another edge");
    }
    if (!inputs_.produced(replica, channel.gradient, ref)) {
      refuse(lane, "is before the operation that produces its message");
    }
    if (links_.of(lane.replica, operation.channel).shared) {
      requests_.push({lane.clock->time, lane_index(lane.replica, lane.lane), lane.position, ref});
      return !blocking_sends_;
    }
    transmit(lane, lane.position, ref, lane.clock->time);
    return true;
  }

  void grant_earliest() {
    const Request request = requests_.top();
    requests_.pop();
    ReplayLane& lane = lanes_[at(request.lane)];
    transmit(lane, request.position, request.ref, request.asked);
    if (blocking_sends_) {
      ++lane.position;
      runnable_.push_back(request.lane);
    }
  }

  // The send at a position of a lane takes its link.
  void transmit(ReplayLane& lane, int position, const UnitRef& ref, std::int64_t asked) {
    ReplayReplica& replica = *lane.state;
    const ReplicaProgram& part = program_.replicas[at(lane.replica)];
    const Operation& operation = part.lanes[at(lane.lane)][at(position)];
    const Channel& channel = part.channels[at(operation.channel)];
    const Links::Passage passage = links_.pass(
        links_.of(lane.replica, operation.channel), asked, cost_of(lane, ref).output_bytes);
    log_.add(lane, position, EventCategory::kSend, passage.start, passage.arrival);
    UnitTimes& times = replica.times[at(ref.unit)];
    std::int64_t& slot = channel.gradient ? times.gradient_arrival : times.output_arrival;
    slot = passage.arrival;
    last_finish_ = std::max(last_finish_, passage.arrival);
    check_time(passage.arrival);
    if (blocking_sends_) {
      wait_until(lane, passage.start);
      advance(lane, passage.arrival);
    }
    const int target = lane_index(lane.replica, channel.target_lane);
    if (lanes_[at(target)].waiting_for == &slot) {
      lanes_[at(target)].waiting_for = nullptr;
      runnable_.push_back(target);
    }
  }

  bool reduce(ReplayLane& lane) {
    const std::int64_t* latest = reduces_[at(lane.lane)].arrive(
        lane, lane_index(lane.replica, lane.lane), lane.num_reduced, runnable_);
    if (latest == nullptr) {
      return false;
    }
    if (buckets_.enabled()) {
      const std::vector<Bucket>& buckets = buckets_.run(lane.lane, lane.num_reduced);
      for (const Bucket& bucket : buckets) {
        log_.add(lane, lane.position, EventCategory::kSend, bucket.start, bucket.finish);
      }
      wait_until(lane, buckets.empty() ? 0 : buckets.back().finish);
    } else {
      wait_until(lane, *latest);
      const std::int64_t start = lane.clock->time;
      log_.add(lane, lane.position, EventCategory::kCompute, start, start + lane.reduce);
      work(lane, start, lane.reduce);
    }
    ++lane.num_reduced;
    return true;
  }

  bool clip(ReplayLane& lane) {
    const std::int64_t* latest =
        clips_.arrive(lane, lane_index(lane.replica, lane.lane), lane.num_clipped, runnable_);
    if (latest == nullptr) {
      return false;
    }
    wait_until(lane, *latest);
    ++lane.num_clipped;
    return true;
  }

  void wait_until(ReplayLane& lane, std::int64_t time) {
    if (time > lane.clock->time) {
      log_.add(lane, lane.position, EventCategory::kWait, lane.clock->time, time);
      advance(lane, time);
    }
  }

  [[nodiscard]] int lane_index(int replica, int lane) const {
    return replica * program_.num_lanes() + lane;
  }

  // Throws  InvalidInput naming the lane's operation.
  [[noreturn]] void refuse(const ReplayLane& lane, const std::string& reason) const {
    const Operation& operation = lane.list->at(at(lane.position));
    throw InvalidInput(fmt::format("replica {} lane {} operation {} ({}): {}",
                                   lane.replica,
                                   lane.lane,
                                   lane.position,
                                   to_string(program_, operation),
                                   reason));
  }

  void check_done() const {
    bool all_done = true;
    std::vector<std::vector<StuckLane>> stuck(replicas_.size());
    for (const ReplayLane& lane : lanes_) {
      all_done = all_done && at(lane.position) == lane.list->size();
      stuck[at(lane.replica)].push_back({lane.position, lane.at_barrier});
    }
    if (!all_done) {
      throw InvalidInput(simulation::describe_deadlock(program_, stages_, stuck));
    }
  }

  Timeline timeline() {
    Timeline result;
    result.lanes.resize(replicas_.size());
    for (const ReplayLane& lane : lanes_) {
      last_finish_ = std::max(last_finish_, lane.clock->time);
      result.lanes[at(lane.replica)].push_back(
          {nanoseconds{lane.busy}, nanoseconds{lane.finish}, lane.clock->peak});
    }
    result.makespan = nanoseconds{last_finish_};
    if (log_.enabled()) {
      log_.add_receives(program_, stages_, links_, replicas_);
      result.events = log_.take();
    }
    return result;
  }

  const Program& program_;
  const StageGraph& stages_;
  bool blocking_sends_;
  std::int64_t stop_after_;
  EventLog log_;
  Inputs inputs_;
  Buckets buckets_;
  Links links_;
  std::vector<ReplayReplica> replicas_;
  std::vector<ReplayLane> lanes_;  // [replica × lanes + lane]
  std::vector<int> runnable_;
  std::priority_queue<Request, std::vector<Request>, LaterRequest> requests_;
  std::vector<Barriers> reduces_;  // [lane]: of all replicas' lane
  Barriers clips_;                 // of all lanes
  std::int64_t last_finish_ = 0;   // of a message; a proven bound where stopped
  bool stopped_ = false;
};

void check_options(const SimulateOptions& options) {
  if (options.reduce_buckets.value_or(0) < 0) {
    throw InvalidInput(
        fmt::format("reduce_buckets: {} given; at least 0 is needed", *options.reduce_buckets));
  }
  if (options.stop_after.count() < 0) {
    throw InvalidInput(
        fmt::format("stop_after: {} ns given; at least 0 is needed", options.stop_after.count()));
  }
}

}  // namespace

Timeline simulate(const Program& program,
                  const StepGraph& graph,
                  const StepCosts& costs,
                  const SimulateOptions& options) {
  check_options(options);
  return Replay(program, graph, costs, options).run();
}

Timeline simulate(const Program& program, const StepCosts& costs, const SimulateOptions& options) {
  check_options(options);
  return simulate(program, step_graph(program, costs), costs, options);
}

}  // namespace entrain
