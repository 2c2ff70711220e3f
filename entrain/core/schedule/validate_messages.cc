#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/validate.h"

namespace entrain::validation {
namespace {

class MessageChecker {
 public:
  MessageChecker(const Subject& subject, int replica, const PlacesOfUnits& places)
      : subject_(subject),
        replica_(replica),
        program_(subject.program.replicas[at(replica)]),
        places_(places),
        passages_(program_.channels.size()) {}

  PassagesOfChannels check() {
    check_channels();
    collect();
    for (int channel = 0; channel < num_channels(); ++channel) {
      check_complete(channel);
      for (const Passage& passage : passages_[at(channel)]) {
        check_passage(program_.channels[at(channel)], passage);
      }
    }
    check_edges();
    return std::move(passages_);
  }

 private:
  [[nodiscard]] int num_channels() const { return static_cast<int>(program_.channels.size()); }
  [[nodiscard]] int lane_of(const StageRef& ref) const {
    return subject_.plan.lane_of(ref.module, ref.stage);
  }
  [[nodiscard]] bool is_stage(const StageRef& ref) const {
    return ref.module >= 0 && ref.module <= subject_.program.llm_module() && ref.stage >= 0 &&
           ref.stage < subject_.program.num_stages[at(ref.module)];
  }
  // The stage that takes this one's output; module -1 after the LLM's last stage.
  [[nodiscard]] StageRef follower(const StageRef& ref) const {
    const int llm = subject_.program.llm_module();
    if (ref.stage + 1 < subject_.program.num_stages[at(ref.module)]) {
      return {ref.module, ref.stage + 1};
    }
    return ref.module == llm ? StageRef{-1, -1} : StageRef{llm, 0};
  }

  [[noreturn]] void fail_channel(int channel, const std::string& what) const {
    throw InvalidInput(fmt::format("replica {} channel {}: {}", replica_, channel, what));
  }

  void check_channels() const {
    for (int i = 0; i < num_channels(); ++i) {
      const Channel& channel = program_.channels[at(i)];
      if (!is_stage(channel.producer) || follower(channel.producer) != channel.consumer ||
          channel.consumer.module < 0) {
        fail_channel(i, "no edge of the stage graph");
      }
      const int producer = lane_of(channel.producer);
      const int consumer = lane_of(channel.consumer);
      const int source = channel.gradient ? consumer : producer;
      const int target = channel.gradient ? producer : consumer;
      if (source == target || channel.source_lane != source || channel.target_lane != target) {
        fail_channel(i,
                     fmt::format("connects lanes {} and {}, its edge lanes {} and {}",
                                 channel.source_lane,
                                 channel.target_lane,
                                 source,
                                 target));
      }
      for (int other = 0; other < i; ++other) {
        if (program_.channels[at(other)] == channel) {
          fail_channel(i, fmt::format("the same edge and direction as channel {}", other));
        }
      }
    }
  }

  // Fills passages_ with sends and receives paired by their order.
  void collect() {
    std::vector<std::vector<Place>> receives(program_.channels.size());
    for (int lane = 0; lane < subject_.program.num_lanes(); ++lane) {
      const std::vector<Operation>& operations = program_.lanes[at(lane)];
      for (int i = 0; i < static_cast<int>(operations.size()); ++i) {
        const Operation& operation = operations[at(i)];
        const bool send = operation.kind == OperationKind::kSend;
        if (!send && operation.kind != OperationKind::kReceive) {
          continue;
        }
        check_end(operation, {lane, i});
        if (send) {
          passages_[at(operation.channel)].push_back({operation.unit, {lane, i}, {}});
        } else {
          receives[at(operation.channel)].push_back({lane, i});
        }
      }
    }
    for (int channel = 0; channel < num_channels(); ++channel) {
      pair(channel, receives[at(channel)]);
    }
  }

  // One end of a message: is it on the channel's lane, and does it name a unit of its edge?
  void check_end(const Operation& operation, Place place) const {
    if (operation.channel < 0 || operation.channel >= num_channels()) {
      throw InvalidInput(where(subject_, replica_, place) + ": unknown channel");
    }
    const Channel& channel = program_.channels[at(operation.channel)];
    const int lane =
        operation.kind == OperationKind::kSend ? channel.source_lane : channel.target_lane;
    if (lane != place.lane) {
      throw InvalidInput(fmt::format(
          "{}: this end of the channel is lane {}", where(subject_, replica_, place), lane));
    }
    if (StageRef{operation.unit.module, operation.unit.stage} != channel.producer) {
      throw InvalidInput(where(subject_, replica_, place) +
                         ": the channel carries another stage's messages");
    }
  }

  void pair(int channel, const std::vector<Place>& receives) {
    std::vector<Passage>& passages = passages_[at(channel)];
    if (passages.size() != receives.size()) {
      fail_channel(channel,
                   fmt::format("{} sends and {} receives", passages.size(), receives.size()));
    }
    for (std::size_t i = 0; i < passages.size(); ++i) {
      const Place& place = receives[i];
      const Operation& receive = program_.lanes[at(place.lane)][at(place.position)];
      if (receive.unit != passages[i].unit) {
        throw InvalidInput(fmt::format("{}: the sender's message number {} is {}",
                                       where(subject_, replica_, place),
                                       i,
                                       where(subject_, replica_, passages[i].send)));
      }
      passages[i].receive = place;
    }
  }

  // Units of the producing stage that send over the channel, in rising order.
  [[nodiscard]] std::vector<UnitKey> expected_units(const Channel& channel) const {
    std::vector<UnitKey> units;
    const auto& slots = program_.groups[at(channel.producer.module)];
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      for (std::size_t group = 0; group < slots[slot].size(); ++group) {
        if (!channel.gradient ||
            slots[slot][group].takes_backward[at(channel.producer.stage)] != 0) {
          units.push_back({channel.producer.module,
                           channel.producer.stage,
                           static_cast<int>(slot),
                           static_cast<int>(group)});
        }
      }
    }
    return units;
  }

  void check_complete(int channel) const {
    std::vector<UnitKey> sent;
    for (const Passage& passage : passages_[at(channel)]) {
      sent.push_back(passage.unit);
    }
    std::sort(sent.begin(), sent.end());
    if (sent != expected_units(program_.channels[at(channel)])) {
      fail_channel(
          channel,
          fmt::format(
              "its {} messages are not those of stage {} {}, each once",
              sent.size(),
              subject_.plan.modules[at(program_.channels[at(channel)].producer.module)].name,
              program_.channels[at(channel)].producer.stage));
    }
  }

  // Places on the consuming stage's lane that take the unit's output (gradient = false) or make its
  // gradient (true).
  [[nodiscard]] std::vector<Place> far_places(const Channel& channel, const UnitKey& unit) const {
    std::vector<UnitKey> units;
    if (channel.consumer.module == unit.module) {
      units.push_back({unit.module, channel.consumer.stage, unit.slot, unit.group});
    } else {
      const Group& group = group_of(program_, unit);
      for (std::size_t part = 0; part < group.llm_slots.size(); ++part) {
        const LlmGroupRef served = group.served(part);
        units.push_back(
            {channel.consumer.module, channel.consumer.stage, served.slot, served.group});
      }
    }
    std::vector<Place> places;
    for (const UnitKey& key : units) {
      const UnitPlaces& found = places_.at(key);
      places.push_back(channel.gradient ? found.gradient() : found.forward);
    }
    return places;
  }

  void check_passage(const Channel& channel, const Passage& passage) const {
    const UnitPlaces& near = places_.at(passage.unit);
    const std::vector<Place> far = far_places(channel, passage.unit);
    const std::vector<Place> producers = channel.gradient ? far : std::vector{near.forward};
    const std::vector<Place> consumers = channel.gradient ? std::vector{near.gradient()} : far;
    for (const Place& producer : producers) {
      if (passage.send.position < producer.position) {
        throw InvalidInput(fmt::format("{}: stands before what it sends, {}",
                                       where(subject_, replica_, passage.send),
                                       where(subject_, replica_, producer)));
      }
    }
    for (const Place& consumer : consumers) {
      if (consumer.position < passage.receive.position) {
        throw InvalidInput(fmt::format("{}: stands behind what needs it, {}",
                                       where(subject_, replica_, passage.receive),
                                       where(subject_, replica_, consumer)));
      }
    }
  }

  // Every edge that crosses lanes and carries something has its channels.
  void check_edges() const {
    for (int module = 0; module <= subject_.program.llm_module(); ++module) {
      for (int stage = 0; stage < subject_.program.num_stages[at(module)]; ++stage) {
        const StageRef producer{module, stage};
        const StageRef consumer = follower(producer);
        if (consumer.module < 0 || lane_of(producer) == lane_of(consumer)) {
          continue;
        }
        for (const bool gradient : {false, true}) {
          const Channel wanted{gradient ? lane_of(consumer) : lane_of(producer),
                               gradient ? lane_of(producer) : lane_of(consumer),
                               producer,
                               consumer,
                               gradient};
          const bool present =
              std::find(program_.channels.begin(), program_.channels.end(), wanted) !=
              program_.channels.end();
          if (!present && !expected_units(wanted).empty()) {
            throw InvalidInput(fmt::format("replica {}: no channel for the {} of {} stage {}",
                                           replica_,
                                           gradient ? "gradients" : "outputs",
                                           subject_.plan.modules[at(module)].name,
                                           stage));
          }
        }
      }
    }
  }

  const Subject& subject_;
  int replica_;
  const ReplicaProgram& program_;
  const PlacesOfUnits& places_;
  PassagesOfChannels passages_;
};

}  // namespace

PassagesOfChannels check_messages(const Subject& subject,
                                  int replica,
                                  const PlacesOfUnits& places) {
  return MessageChecker(subject, replica, places).check();
}

}  // namespace entrain::validation
