#include "entrain/core/schedule/communication.h"

#include <algorithm>
#include <limits>

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

constexpr std::size_t kStepWideOperations = 3;

bool makes_gradient(const Operation& operation) {
  return operation.kind == OperationKind::kBackward ||
         operation.kind == OperationKind::kBackwardInput;
}

// A message in its sender's order.
struct Message {
  UnitKey unit;
  int place = 0;  // the receive is before this compute position of the receiving lane
};

class Communication {
 public:
  Communication(const OrderInputs& inputs, const ChannelTable& channels, const LaneOrders& compute)
      : stages_(inputs.stages),
        graph_(inputs.graph),
        channels_(channels),
        compute_(compute),
        forward_position_(at(graph_.num_units), 0),
        backward_position_(at(graph_.num_units), 0),
        messages_(channels.channels.size()),
        sends_(compute.size()),
        sends_end_(compute.size()) {}

  LaneOrders run() {
    find_positions();
    find_gradients();
    for (std::size_t channel = 0; channel < messages_.size(); ++channel) {
      const int module = channels_.channels[channel].producer.module;
      messages_[channel].reserve(at(graph_.end_of(module) - graph_.first_group[at(module)]));
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
        const UnitKey& key = lane[i].unit;
        const int unit = graph_.unit(graph_.number(key), key.stage);
        if (is_forward(lane[i])) {
          forward_position_[at(unit)] = static_cast<int>(i);
        } else if (makes_gradient(lane[i])) {
          backward_position_[at(unit)] = static_cast<int>(i);
        }
      }
    }
  }

  // Encoder groups with a backward, by the LLM group whose backward completes their gradient.
  void find_gradients() {
    const int end = graph_.first_llm_group();
    gradients_.begin.assign(graph_.groups.size() - at(end) + 1, 0);
    std::vector<int> last_taker(at(end), -1);
    for (int number = 0; number < end; ++number) {
      const GraphGroup& group = graph_.group(number);
      if (group.first_backward == stages_.num_stages(group.module)) {
        continue;
      }
      const auto served = graph_.served_by(group);
      const int last = *std::max_element(served.begin(), served.end(), [&](int a, int b) {
        return backward_position_[at(graph_.unit(a, 0))] <
               backward_position_[at(graph_.unit(b, 0))];
      });
      last_taker[at(number)] = last - end;
      ++gradients_.begin[at(last - end + 1)];
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
  [[nodiscard]] int first_need(int group) const {
    int first = std::numeric_limits<int>::max();
    for (const int taker : graph_.served_by(graph_.group(group))) {
      first = std::min(first, forward_position_[at(graph_.unit(taker, 0))]);
    }
    return first;
  }

  void add_message(int channel, const UnitKey& unit, int need, std::vector<Operation>& sends) {
    messages_[at(channel)].push_back({unit, std::max(0, need - 1)});
    sends.push_back({OperationKind::kSend, unit, channel});
  }

  void find_sends(const Operation& operation, std::vector<Operation>& sends) {
    const UnitKey& key = operation.unit;
    const int group = graph_.number(key);
    if (is_forward(operation)) {
      const int channel = channels_.activation_of[at(stages_.number(key.module, key.stage))];
      if (channel >= 0) {
        const bool to_llm = key.stage + 1 == stages_.num_stages(key.module);
        add_message(
            channel,
            key,
            to_llm ? first_need(group) : forward_position_[at(graph_.unit(group, key.stage + 1))],
            sends);
      }
    } else if (makes_gradient(operation)) {
      if (key.stage > 0) {
        send_gradient(group, key.stage - 1, sends);
      } else if (key.module == stages_.llm) {
        for (const int encoder_group : gradients_.of(group - graph_.first_llm_group())) {
          const int module = graph_.group(encoder_group).module;
          send_gradient(encoder_group, stages_.num_stages(module) - 1, sends);
        }
      }
    }
  }

  // Gradient of the output of `group` on `stage` of its module.
  void send_gradient(int group, int stage, std::vector<Operation>& sends) {
    const GraphGroup& of = graph_.group(group);
    const int channel = channels_.activation_of[at(stages_.number(of.module, stage))];
    if (channel >= 0 && stage >= of.first_backward) {
      add_message(channel + 1,
                  graph_.key(group, stage),
                  backward_position_[at(graph_.unit(group, stage))],
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

  const StageGraph& stages_;
  const ReplicaGraph& graph_;
  const ChannelTable& channels_;
  const LaneOrders& compute_;
  std::vector<int> forward_position_;   // [unit]: on its lane
  std::vector<int> backward_position_;  // [unit]: of the input gradient
  GroupLists gradients_;  // encoder groups by completing LLM group, counted from the first
  std::vector<std::vector<Message>> messages_;       // [channel]
  LaneOrders sends_;                                 // [lane]: in order
  std::vector<std::vector<std::size_t>> sends_end_;  // [lane][position]: sends up to here
};

}  // namespace

ChannelTable channel_table(const StageGraph& stages) {
  ChannelTable result;
  for (const StageGraph::Stage& stage : stages.stages) {
    result.activation_of.push_back(-1);
    if (!stage.crosses) {
      continue;
    }
    const StageRef producer{stage.module, stage.stage};
    const StageRef consumer =
        stage.last ? StageRef{stages.llm, 0} : StageRef{stage.module, stage.stage + 1};
    const int target = stages.of(consumer.module, consumer.stage).lane;
    result.activation_of.back() = static_cast<int>(result.channels.size());
    result.channels.push_back({stage.lane, target, producer, consumer, false});
    result.channels.push_back({target, stage.lane, producer, consumer, true});
  }
  return result;
}

LaneOrders add_communication(const OrderInputs& inputs,
                             const ChannelTable& channels,
                             const LaneOrders& compute) {
  return Communication(inputs, channels, compute).run();
}

}  // namespace entrain
