#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/schedule/validate.h"
#include "entrain/core/simulator/simulator.h"

namespace entrain::validation {
namespace {

// Nodes are the operations of all lanes and, after them, one node per message: its arrival. An
// arrival waits for its send, for its receive to be posted and for the arrival before it on the
// channel; this is what a transport without buffers does.
class WaitGraph {
 public:
  WaitGraph(const Subject& subject,
            int replica,
            const PlacesOfUnits& places,
            const PassagesOfChannels& passages)
      : subject_(subject),
        replica_(replica),
        program_(subject.program.replicas[at(replica)]),
        places_(places) {
    for (const std::vector<Operation>& lane : program_.lanes) {
      first_node_.push_back(num_operations_);
      num_operations_ += static_cast<int>(lane.size());
    }
    int num_messages = 0;
    for (const std::vector<Passage>& channel : passages) {
      num_messages += static_cast<int>(channel.size());
    }
    followers_.resize(at(num_operations_ + num_messages));
    num_waits_.resize(followers_.size(), 0);
    add_lane_orders();
    add_messages(passages);
    for (const auto& [unit, of_unit] : places_) {
      add_unit(unit, of_unit);
    }
  }

  // Runs everything that can run and names an operation that cannot.
  void check() {
    std::vector<int> ready;
    for (std::size_t node = 0; node < num_waits_.size(); ++node) {
      if (num_waits_[node] == 0) {
        ready.push_back(static_cast<int>(node));
      }
    }
    while (!ready.empty()) {
      const int node = ready.back();
      ready.pop_back();
      for (const int follower : followers_[at(node)]) {
        if (--num_waits_[at(follower)] == 0) {
          ready.push_back(follower);
        }
      }
    }
    for (int lane = 0; lane < subject_.program.num_lanes(); ++lane) {
      for (int i = 0; i < static_cast<int>(program_.lanes[at(lane)].size()); ++i) {
        if (num_waits_[at(node_of({lane, i}))] > 0) {
          throw InvalidInput(where(subject_, replica_, {lane, i}) +
                             ": waits for itself through the orders of the lanes");
        }
      }
    }
  }

 private:
  [[nodiscard]] int node_of(Place place) const {
    return first_node_[at(place.lane)] + place.position;
  }

  void add(int before, int after) {
    followers_[at(before)].push_back(after);
    ++num_waits_[at(after)];
  }
  void add(Place before, Place after) { add(node_of(before), node_of(after)); }

  // Sends are in this order too; they wait for their message's arrival.
  void add_lane_orders() {
    for (int lane = 0; lane < subject_.program.num_lanes(); ++lane) {
      const auto size = static_cast<int>(program_.lanes[at(lane)].size());
      for (int i = 1; i < size; ++i) {
        add(Place{lane, i - 1}, Place{lane, i});
      }
    }
  }

  void add_messages(const PassagesOfChannels& passages) {
    int arrival = num_operations_;
    for (std::size_t channel = 0; channel < passages.size(); ++channel) {
      for (std::size_t i = 0; i < passages[channel].size(); ++i, ++arrival) {
        const Passage& passage = passages[channel][i];
        add(node_of(passage.send), arrival);
        add(node_of(passage.receive), arrival);
        if (i > 0) {
          add(arrival - 1, arrival);
        }
        (program_.channels[channel].gradient ? gradient_arrival_ : output_arrival_)[passage.unit] =
            arrival;
      }
    }
  }

  // `after` needs the message, or, where none crosses lanes, `before`.
  void add_input(const std::map<UnitKey, int>& arrivals,
                 const UnitKey& message,
                 Place before,
                 Place after) {
    const auto arrival = arrivals.find(message);
    if (arrival != arrivals.end()) {
      add(arrival->second, node_of(after));
    } else {
      add(before, after);
    }
  }

  void add_unit(const UnitKey& unit, const UnitPlaces& of_unit) {
    const bool to_llm = unit.module != subject_.program.llm_module() &&
                        unit.stage + 1 == subject_.program.num_stages[at(unit.module)];
    std::vector<UnitKey> next;  // units that take this one's output
    if (to_llm) {
      const Group& group = group_of(program_, unit);
      for (std::size_t part = 0; part < group.llm_slots.size(); ++part) {
        const LlmGroupRef served = group.served(part);
        next.push_back({subject_.program.llm_module(), 0, served.slot, served.group});
      }
    } else if (unit.stage + 1 < subject_.program.num_stages[at(unit.module)]) {
      next.push_back({unit.module, unit.stage + 1, unit.slot, unit.group});
    }
    const Place& gradient = of_unit.gradient();
    for (const UnitKey& key : next) {
      const UnitPlaces& of_next = places_.at(key);
      add_input(output_arrival_, unit, of_unit.forward, of_next.forward);
      if (gradient.exists()) {
        add_input(gradient_arrival_, unit, of_next.gradient(), gradient);
      }
    }
  }

  const Subject& subject_;
  int replica_;
  const ReplicaProgram& program_;
  const PlacesOfUnits& places_;
  int num_operations_ = 0;
  std::vector<int> first_node_;              // [lane]
  std::vector<std::vector<int>> followers_;  // [node]
  std::vector<int> num_waits_;               // [node]
  std::map<UnitKey, int> output_arrival_;    // node of a message
  std::map<UnitKey, int> gradient_arrival_;
};

}  // namespace

void check_acyclic(const Subject& subject,
                   int replica,
                   const PlacesOfUnits& places,
                   const PassagesOfChannels& passages) {
  WaitGraph(subject, replica, places, passages).check();
}

void check_memory(const Subject& subject, const StepGraph& graph, int replica) {
  for (int lane = 0; lane < subject.program.num_lanes(); ++lane) {
    const std::int64_t limit = subject.plan.limits.bytes_of(lane);
    if (limit == 0) {
      continue;
    }
    const std::vector<std::int64_t> bytes = memory_over_time(subject.program, graph, replica, lane);
    const auto over = std::find_if(
        bytes.begin(), bytes.end(), [limit](std::int64_t held) { return held > limit; });
    if (over != bytes.end()) {
      const Place place{lane, static_cast<int>(over - bytes.begin())};
      throw InvalidInput(fmt::format("{}: holds {} of activations, its limit is {}",
                                     where(subject, replica, place),
                                     format_bytes(*over),
                                     format_bytes(limit)));
    }
  }
}

}  // namespace entrain::validation
