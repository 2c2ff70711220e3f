#include "entrain/core/schedule/communication.h"

#include <algorithm>
#include <limits>

namespace entrain {
namespace {

constexpr std::size_t kStepWideOperations = 3;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

bool is_forward(const Operation& operation) {
  return operation.kind == OperationKind::kForward;
}

bool makes_gradient(const Operation& operation) {
  return operation.kind == OperationKind::kBackward ||
         operation.kind == OperationKind::kBackwardInput;
}

// A message in its sender's order.
struct Message {
  UnitKey unit;
  int place = 0;  // compute position on the receiving lane before which the receive stands
};

class Communication {
 public:
  Communication(const OrderInputs& inputs, const ChannelTable& channels, const LaneOrders& compute)
      : table_(inputs.table),
        groups_(inputs.groups),
        channels_(channels),
        compute_(compute),
        forward_position_(at(table_.num_units()), 0),
        backward_position_(at(table_.num_units()), 0),
        messages_(channels.channels.size()),
        sends_(compute.size()),
        sends_end_(compute.size()) {}

  LaneOrders run() {
    find_positions();
    find_gradients();
    for (std::size_t channel = 0; channel < messages_.size(); ++channel) {
      const int module = channels_.channels[channel].producer.module;
      messages_[channel].reserve(
          at(table_.first_group(module, table_.num_slots()) - table_.first_group(module, 0)));
    }
    for (std::size_t lane = 0; lane < compute_.size(); ++lane) {
      sends_[lane].reserve(2 * compute_[lane].size());
      sends_end_[lane].reserve(compute_[lane].size());
      for (const Operation& operation : compute_[lane]) {
        find_sends(operation, sends_[lane]);
        sends_end_[lane].push_back(sends_[lane].size());
      }
    }
    for (std::vector<Message>& messages : messages_) {
      keep_senders_order(messages);
    }
    LaneOrders result(compute_.size());
    for (std::size_t lane = 0; lane < compute_.size(); ++lane) {
      emit(lane, result[lane]);
    }
    return result;
  }

 private:
  void find_positions() {
    for (const std::vector<Operation>& lane : compute_) {
      for (std::size_t i = 0; i < lane.size(); ++i) {
        const UnitKey& unit = lane[i].unit;
        const int number = table_.unit_number(table_.group_number(unit), unit.stage);
        if (is_forward(lane[i])) {
          forward_position_[at(number)] = static_cast<int>(i);
        } else if (makes_gradient(lane[i])) {
          backward_position_[at(number)] = static_cast<int>(i);
        }
      }
    }
  }

  // LLM group of an encoder group's part, counted from the LLM's first, and its first-stage unit.
  [[nodiscard]] int taker_of(const Group& group, std::size_t part) const {
    return table_.llm_group(group.served(part)) - table_.first_group(table_.llm_module(), 0);
  }
  [[nodiscard]] int llm_unit(int taker) const {
    return table_.unit_number(table_.first_group(table_.llm_module(), 0) + taker, 0);
  }
  [[nodiscard]] const Group& group_of(const GroupEntry& entry) const {
    return groups_[at(entry.module)][at(entry.slot)][at(entry.group)];
  }

  // Encoder groups with a backward, by the LLM group whose backward completes their gradient.
  void find_gradients() {
    const int end = table_.first_group(table_.llm_module(), 0);
    gradients_.begin.assign(table_.groups().size() - at(end) + 1, 0);
    std::vector<int> last_taker(at(end), -1);
    for (int number = 0; number < end; ++number) {
      const GroupEntry& entry = table_.entry(number);
      if (entry.first_backward_stage == table_.num_stages(entry.module)) {
        continue;
      }
      const Group& group = group_of(entry);
      int last = taker_of(group, 0);
      for (std::size_t part = 1; part < group.llm_slots.size(); ++part) {
        const int taker = taker_of(group, part);
        if (backward_position_[at(llm_unit(taker))] > backward_position_[at(llm_unit(last))]) {
          last = taker;
        }
      }
      last_taker[at(number)] = last;
      ++gradients_.begin[at(last + 1)];
    }
    for (std::size_t taker = 1; taker < gradients_.begin.size(); ++taker) {
      gradients_.begin[taker] += gradients_.begin[taker - 1];
    }
    gradients_.groups.resize(at(gradients_.begin.back()));
    std::vector<int> next(gradients_.begin.begin(), gradients_.begin.end() - 1);
    for (int number = 0; number < end; ++number) {
      if (last_taker[at(number)] >= 0) {
        gradients_.groups[at(next[at(last_taker[at(number)])]++)] = number;
      }
    }
  }

  // First compute position on the LLM's first lane that needs an encoder group's output.
  [[nodiscard]] int first_need(const GroupEntry& entry) const {
    const Group& group = group_of(entry);
    int first = std::numeric_limits<int>::max();
    for (std::size_t part = 0; part < group.llm_slots.size(); ++part) {
      first = std::min(first, forward_position_[at(llm_unit(taker_of(group, part)))]);
    }
    return first;
  }

  void add_message(int channel, const UnitKey& unit, int need, std::vector<Operation>& sends) {
    messages_[at(channel)].push_back({unit, std::max(0, need - 1)});
    sends.push_back({OperationKind::kSend, unit, channel});
  }

  void find_sends(const Operation& operation, std::vector<Operation>& sends) {
    const UnitKey& unit = operation.unit;
    const int group = table_.group_number(unit);
    if (is_forward(operation)) {
      const int channel = channels_.activation_of[at(table_.stage_number(unit.module, unit.stage))];
      if (channel >= 0) {
        const bool to_llm = unit.stage + 1 == table_.num_stages(unit.module);
        add_message(channel,
                    unit,
                    to_llm ? first_need(table_.entry(group))
                           : forward_position_[at(table_.unit_number(group, unit.stage + 1))],
                    sends);
      }
    } else if (makes_gradient(operation)) {
      if (unit.stage > 0) {
        send_gradient(group, unit.stage - 1, sends);
      } else if (unit.module == table_.llm_module()) {
        const int taker = group - table_.first_group(table_.llm_module(), 0);
        for (int i = gradients_.begin[at(taker)]; i < gradients_.begin[at(taker + 1)]; ++i) {
          const int encoder_group = gradients_.groups[at(i)];
          const int module = table_.entry(encoder_group).module;
          send_gradient(encoder_group, table_.num_stages(module) - 1, sends);
        }
      }
    }
  }

  // Gradient of the output of `group` on `stage`.
  void send_gradient(int group, int stage, std::vector<Operation>& sends) {
    const GroupEntry& entry = table_.entry(group);
    const int channel = channels_.activation_of[at(table_.stage_number(entry.module, stage))];
    if (channel >= 0 && stage >= entry.first_backward_stage) {
      add_message(channel + 1,
                  table_.key(group, stage),
                  backward_position_[at(table_.unit_number(group, stage))],
                  sends);
    }
  }

  static void keep_senders_order(std::vector<Message>& messages) {
    for (std::size_t i = messages.size(); i > 1; --i) {
      messages[i - 2].place = std::min(messages[i - 2].place, messages[i - 1].place);
    }
  }

  void emit(std::size_t lane, std::vector<Operation>& result) const {
    std::vector<int> incoming;
    std::size_t num_receives = 0;
    for (std::size_t channel = 0; channel < messages_.size(); ++channel) {
      if (at(channels_.channels[channel].target_lane) == lane && !messages_[channel].empty()) {
        incoming.push_back(static_cast<int>(channel));
        num_receives += messages_[channel].size();
      }
    }
    std::vector<std::size_t> next(incoming.size(), 0);
    const std::vector<Operation>& compute = compute_[lane];
    result.reserve(compute.size() + num_receives + sends_[lane].size() + kStepWideOperations);
    std::size_t next_send = 0;
    for (std::size_t i = 0; i < compute.size(); ++i) {
      for (std::size_t c = 0; c < incoming.size(); ++c) {
        const std::vector<Message>& messages = messages_[at(incoming[c])];
        while (next[c] < messages.size() && at(messages[next[c]].place) <= i) {
          result.push_back({OperationKind::kReceive, messages[next[c]++].unit, incoming[c]});
        }
      }
      result.push_back(compute[i]);
      for (; next_send < sends_end_[lane][i]; ++next_send) {
        result.push_back(sends_[lane][next_send]);
      }
    }
  }

  const UnitTable& table_;
  const std::vector<ModuleGroups>& groups_;
  const ChannelTable& channels_;
  const LaneOrders& compute_;
  std::vector<int> forward_position_;   // [unit]: on its lane
  std::vector<int> backward_position_;  // [unit]: of the input gradient
  GroupsBySlot gradients_;  // encoder groups by completing LLM group, counted from the first
  std::vector<std::vector<Message>> messages_;       // [channel]
  LaneOrders sends_;                                 // [lane]: in order
  std::vector<std::vector<std::size_t>> sends_end_;  // [lane][position]: sends up to here
};

}  // namespace

ChannelTable channel_table(const Plan& plan, const std::vector<int>& num_stages) {
  ChannelTable result;
  const int llm = static_cast<int>(num_stages.size()) - 1;
  for (int module = 0; module <= llm; ++module) {
    for (int stage = 0; stage < num_stages[at(module)]; ++stage) {
      result.activation_of.push_back(-1);
      const StageRef producer{module, stage};
      const bool last = stage + 1 == num_stages[at(module)];
      if (last && module == llm) {
        continue;
      }
      const StageRef consumer = last ? StageRef{llm, 0} : StageRef{module, stage + 1};
      const int source = plan.lane_of(producer.module, producer.stage);
      const int target = plan.lane_of(consumer.module, consumer.stage);
      if (source != target) {
        result.activation_of.back() = static_cast<int>(result.channels.size());
        result.channels.push_back({source, target, producer, consumer, false});
        result.channels.push_back({target, source, producer, consumer, true});
      }
    }
  }
  return result;
}

LaneOrders add_communication(const OrderInputs& inputs,
                             const ChannelTable& channels,
                             const LaneOrders& compute) {
  return Communication(inputs, channels, compute).run();
}

}  // namespace entrain
