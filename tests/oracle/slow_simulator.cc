#include "tests/oracle/slow_simulator.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "entrain/core/base/at.h"

namespace entrain::oracle {
namespace {

using std::chrono::nanoseconds;

bool is_gradient(OperationKind kind) {
  return kind == OperationKind::kBackward || kind == OperationKind::kBackwardInput;
}

bool is_message(OperationKind kind) {
  return kind == OperationKind::kSend || kind == OperationKind::kReceive;
}

nanoseconds lane_sum(const Program& program,
                     const StepCosts& costs,
                     int lane,
                     nanoseconds StageCosts::*field) {
  nanoseconds total{0};
  for (const StageRef& ref : program.lanes[at(lane)]) {
    total += costs.modules[at(ref.module)].stages[at(ref.stage)].*field;
  }
  return total;
}

class SlowSimulator {
 public:
  SlowSimulator(const Program& program, const StepCosts& costs, const SimulateOptions& options)
      : program_(program), costs_(costs), options_(options) {
    result_.buckets.resize(program.lanes.size());
    for (const ReplicaProgram& replica : program.replicas) {
      auto& lanes = result_.operations.emplace_back();
      for (const std::vector<Operation>& list : replica.lanes) {
        lanes.emplace_back(list.size());
      }
    }
  }

  SlowTimeline run() {
    do {
      run_what_can();
    } while (grant_earliest());
    for (const auto& replica : result_.operations) {
      for (const auto& lane : replica) {
        for (const auto& operation : lane) {
          result_.makespan = std::max(result_.makespan, operation.value_or(SlowOperation{}).finish);
        }
      }
    }
    return std::move(result_);
  }

 private:
  using Time = std::optional<nanoseconds>;

  // Everything but sends that wait for a link which they share with other lanes.
  void run_what_can() {
    bool changed = true;
    while (changed) {
      changed = false;
      result_.finished = true;
      for (int replica = 0; replica < static_cast<int>(program_.replicas.size()); ++replica) {
        for (int lane = 0; lane < program_.num_lanes(); ++lane) {
          for (int i = 0; i < static_cast<int>(list(replica, lane).size()); ++i) {
            if (list(replica, lane)[at(i)].kind == OperationKind::kReceive ||
                done(replica, lane, i)) {
              continue;
            }
            done(replica, lane, i) = try_to_run(replica, lane, i);
            changed = changed || done(replica, lane, i).has_value();
            result_.finished = result_.finished && done(replica, lane, i).has_value();
          }
        }
      }
    }
  }

  // Gives a link between nodes to the send that asked first; false when none asks.
  bool grant_earliest() {
    using Request = std::tuple<nanoseconds, int, int, int>;
    std::optional<Request> earliest;
    for (int replica = 0; replica < static_cast<int>(program_.replicas.size()); ++replica) {
      for (int lane = 0; lane < program_.num_lanes(); ++lane) {
        for (int i = 0; i < static_cast<int>(list(replica, lane).size()); ++i) {
          if (!waits_for_node(replica, lane, i) || done(replica, lane, i)) {
            continue;
          }
          const Time asked = lane_free(replica, lane, i);
          if (asked && produced(replica, lane, i)) {
            const Request request{*asked, replica, lane, i};
            earliest = earliest ? std::min(*earliest, request) : request;
          }
        }
      }
    }
    if (earliest) {
      const auto [asked, replica, lane, position] = *earliest;
      nanoseconds& free = node_free_[options_.network.nodes[at(replica)][at(lane)]];
      done(replica, lane, position) = passed(replica, lane, position, std::max(asked, free));
      free = done(replica, lane, position)->finish;
    }
    return earliest.has_value();
  }

  [[nodiscard]] int node_of(int replica, int lane) const {
    return options_.network.nodes.empty() ? 0 : options_.network.nodes[at(replica)][at(lane)];
  }
  [[nodiscard]] bool between_nodes(int replica, const Channel& channel) const {
    return node_of(replica, channel.source_lane) != node_of(replica, channel.target_lane);
  }
  [[nodiscard]] const Channel& channel_of(int replica, const Operation& operation) const {
    return program_.replicas[at(replica)].channels[at(operation.channel)];
  }
  [[nodiscard]] bool waits_for_node(int replica, int lane, int position) const {
    const Operation& operation = list(replica, lane)[at(position)];
    return operation.kind == OperationKind::kSend && options_.sharing == LinkSharing::kNode &&
           between_nodes(replica, channel_of(replica, operation));
  }
  // Whether two sends of one lane share a link that no other lane uses.
  [[nodiscard]] bool same_link(int replica, const Operation& a, const Operation& b) const {
    if (options_.sharing == LinkSharing::kChannel) {
      return a.channel == b.channel;
    }
    return options_.sharing == LinkSharing::kLane ||
           !(between_nodes(replica, channel_of(replica, a)) ||
             between_nodes(replica, channel_of(replica, b)));
  }

  [[nodiscard]] const std::vector<Operation>& list(int replica, int lane) const {
    return program_.replicas[at(replica)].lanes[at(lane)];
  }
  std::optional<SlowOperation>& done(int replica, int lane, int position) {
    return result_.operations[at(replica)][at(lane)][at(position)];
  }
  Time finish_of(int replica, int lane, int position) {
    const auto& operation = done(replica, lane, position);
    return operation ? Time(operation->finish) : std::nullopt;
  }

  // When everything that holds the lane before a position has finished.
  Time lane_free(int replica, int lane, int position) {
    for (int i = position - 1; i >= 0; --i) {
      const OperationKind kind = list(replica, lane)[at(i)].kind;
      if (!is_message(kind) || (options_.blocking_sends && kind == OperationKind::kSend)) {
        return finish_of(replica, lane, i);
      }
    }
    return nanoseconds{0};
  }

  // Finish of the first operation of a lane before `end` that `matches`.
  template <class Matches>
  Time find(int replica, int lane, int end, const Matches& matches) {
    for (int i = 0; i < std::min(end, static_cast<int>(list(replica, lane).size())); ++i) {
      if (matches(list(replica, lane)[at(i)])) {
        return finish_of(replica, lane, i);
      }
    }
    return std::nullopt;
  }
  Time find_compute(int replica, int lane, int end, const UnitKey& unit, bool gradient) {
    return find(replica, lane, end, [&](const Operation& operation) {
      return operation.unit == unit &&
             (gradient ? is_gradient(operation.kind) : operation.kind == OperationKind::kForward);
    });
  }
  Time find_message(int replica, int lane, const UnitKey& unit, bool gradient) {
    return find(
        replica, lane, static_cast<int>(list(replica, lane).size()), [&](const Operation& op) {
          return op.kind == OperationKind::kSend && op.unit == unit &&
                 program_.replicas[at(replica)].channels[at(op.channel)].gradient == gradient;
        });
  }

  // The latest arrival of what an operation takes in; empty while something is missing.
  Time inputs(int replica, int lane, int position) {
    const Operation& operation = list(replica, lane)[at(position)];
    const UnitKey& unit = operation.unit;
    if (operation.kind == OperationKind::kBackwardWeight) {
      return find_compute(replica, lane, position, unit, true);
    }
    const bool gradient = is_gradient(operation.kind);
    Time latest = nanoseconds{0};
    if (gradient) {
      latest = find_compute(replica, lane, position, unit, false);
    }
    for (const UnitKey& input : gradient ? backward_inputs(program_, replica, unit)
                                         : forward_inputs(program_, replica, unit)) {
      const int source = lane_of(program_, input);
      const Time time = source == lane
                            ? find_compute(replica, lane, position, input, gradient)
                            : find_message(replica, source, gradient ? unit : input, gradient);
      if (!latest || !time) {
        return std::nullopt;
      }
      latest = std::max(*latest, *time);
    }
    return latest;
  }

  std::optional<SlowOperation> try_to_run(int replica, int lane, int position) {
    const Operation& operation = list(replica, lane)[at(position)];
    const Time free = lane_free(replica, lane, position);
    if (!free) {
      return std::nullopt;
    }
    switch (operation.kind) {
      case OperationKind::kSend:
        return waits_for_node(replica, lane, position) ? std::nullopt
                                                       : send(replica, lane, position, *free);
      case OperationKind::kReduceGradients: {
        const Time all = barrier(operation.kind, lane, lane + 1);
        if (all && num_buckets() > 0) {
          return ran(std::max(*free, reduced(lane)), nanoseconds{0});
        }
        return all ? ran(*all, lane_sum(program_, costs_, lane, &StageCosts::reduce))
                   : std::nullopt;
      }
      case OperationKind::kClipNorm: {
        const Time all = barrier(operation.kind, 0, program_.num_lanes());
        return all ? ran(*all, nanoseconds{0}) : std::nullopt;
      }
      case OperationKind::kGatherParameters:
        return ran(*free, nanoseconds{0});
      case OperationKind::kOptimizerStep:
        return ran(*free, lane_sum(program_, costs_, lane, &StageCosts::optimizer));
      default: {
        const Time ready = inputs(replica, lane, position);
        if (!ready) {
          return std::nullopt;
        }
        const Group& group = group_of(program_.replicas[at(replica)], operation.unit);
        return ran(std::max(*free, *ready),
                   operation_time(costs_, operation.kind, operation.unit, group));
      }
    }
  }

  static std::optional<SlowOperation> ran(nanoseconds start, nanoseconds duration) {
    return SlowOperation{start, start + duration};
  }

  std::optional<SlowOperation> send(int replica, int lane, int position, nanoseconds free) {
    if (!produced(replica, lane, position)) {
      return std::nullopt;
    }
    const Operation& operation = list(replica, lane)[at(position)];
    for (int i = position - 1; i >= 0; --i) {
      const Operation& earlier = list(replica, lane)[at(i)];
      if (earlier.kind == OperationKind::kSend && same_link(replica, earlier, operation)) {
        const Time link_free = finish_of(replica, lane, i);
        if (!link_free) {
          return std::nullopt;
        }
        free = std::max(free, *link_free);
        break;
      }
    }
    return passed(replica, lane, position, free);
  }

  // Whether what a send sends has been made on its lane.
  bool produced(int replica, int lane, int position) {
    const Operation& operation = list(replica, lane)[at(position)];
    const bool gradient = channel_of(replica, operation).gradient;
    std::vector<UnitKey> producers = {operation.unit};
    if (gradient) {
      producers = backward_inputs(program_, replica, operation.unit);
      // Later chunks on the same stage make other gradients.
      std::erase_if(producers, [&](const UnitKey& producer) {
        return producer.module == operation.unit.module && producer.stage == operation.unit.stage;
      });
    }
    for (const UnitKey& producer : producers) {
      if (!find_compute(replica, lane, position, producer, gradient)) {
        return false;
      }
    }
    return true;
  }

  std::optional<SlowOperation> passed(int replica, int lane, int position, nanoseconds start) {
    const Operation& operation = list(replica, lane)[at(position)];
    const Network& network = options_.network;
    const bool between = between_nodes(replica, channel_of(replica, operation));
    const LinkSpec& link = network.nodes.empty() ? costs_.link
                           : between             ? network.inter_node
                                                 : network.intra_node;
    const Group& group = group_of(program_.replicas[at(replica)], operation.unit);
    return ran(start, transfer_time(link, output_bytes(costs_, operation.unit, group)));
  }

  // Per stage; 0: reductions run at the end of the step.
  [[nodiscard]] int num_buckets() const {
    return options_.reduce_buckets.has_value() ? *options_.reduce_buckets : costs_.reduce_buckets;
  }

  // Runs a lane's buckets; when the last is done.
  nanoseconds reduced(int lane) {
    std::vector<SlowOperation>& buckets = result_.buckets[at(lane)];
    buckets.clear();
    nanoseconds now{0};
    const std::vector<StageRef>& stages = program_.lanes[at(lane)];
    for (auto ref = stages.rbegin(); ref != stages.rend(); ++ref) {
      const StageCosts& stage = costs_.modules[at(ref->module)].stages[at(ref->stage)];
      const int n = stage.trainable ? num_buckets() : 0;
      for (int i = 0; i < n; ++i) {
        nanoseconds ready{0};
        for (int replica = 0; replica < static_cast<int>(program_.replicas.size()); ++replica) {
          const SlowOperation last = last_weight_gradient(replica, lane, *ref);
          ready = std::max(ready, last.start + (last.finish - last.start) * (i + 1) / n);
        }
        const nanoseconds start = std::max(now, ready);
        now = start + (stage.reduce * (i + 1) / n - stage.reduce * i / n);
        buckets.push_back({start, now});
      }
    }
    return now;
  }

  // Of a stage before the lane's reduce_gradients, where all has run; zero times where there is
  // none.
  SlowOperation last_weight_gradient(int replica, int lane, const StageRef& stage) {
    SlowOperation last;
    for (std::size_t i = 0; i < list(replica, lane).size(); ++i) {
      const Operation& operation = list(replica, lane)[i];
      if (operation.kind == OperationKind::kReduceGradients) {
        break;
      }
      const bool makes = operation.kind == OperationKind::kBackward ||
                         operation.kind == OperationKind::kBackwardWeight;
      if (makes && StageRef{operation.unit.module, operation.unit.stage} == stage) {
        last = *done(replica, lane, static_cast<int>(i));
      }
    }
    return last;
  }

  // When the lanes [begin, end) of all replicas have come to their operation of a kind.
  Time barrier(OperationKind kind, int begin, int end) {
    nanoseconds latest{0};
    for (int replica = 0; replica < static_cast<int>(program_.replicas.size()); ++replica) {
      for (int lane = begin; lane < end; ++lane) {
        const std::vector<Operation>& operations = list(replica, lane);
        const auto found = std::find_if(operations.begin(),
                                        operations.end(),
                                        [&](const Operation& op) { return op.kind == kind; });
        if (found == operations.end()) {
          return std::nullopt;
        }
        const Time free = lane_free(replica, lane, static_cast<int>(found - operations.begin()));
        if (!free) {
          return std::nullopt;
        }
        latest = std::max(latest, *free);
      }
    }
    return latest;
  }

  const Program& program_;
  const StepCosts& costs_;
  const SimulateOptions& options_;
  std::map<int, nanoseconds> node_free_;
  SlowTimeline result_;
};

}  // namespace

int lane_of(const Program& program, const UnitKey& unit) {
  for (std::size_t lane = 0; lane < program.lanes.size(); ++lane) {
    for (const StageRef& ref : program.lanes[lane]) {
      if (ref == StageRef{unit.module, unit.stage}) {
        return static_cast<int>(lane);
      }
    }
  }
  return -1;
}

SlowTimeline slow_simulate(const Program& program,
                           const StepCosts& costs,
                           const SimulateOptions& options) {
  return SlowSimulator(program, costs, options).run();
}

}  // namespace entrain::oracle
