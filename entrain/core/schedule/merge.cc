#include "entrain/core/schedule/merge.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr std::int64_t kNotRun = -1;

// Ties: what others wait for first, then what makes new work, then what nobody waits for.
int urgency(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::kForward:
      return 1;
    case OperationKind::kBackwardWeight:
      return 0;
    default:
      return 2;
  }
}

// When every unit's forward and backward (its input half) has finished.
class Finishes {
 public:
  explicit Finishes(const OrderInputs& inputs)
      : stages_(inputs.stages),
        graph_(inputs.graph),
        finish_(2 * at(inputs.graph.num_units), kNotRun) {}

  // When an operation's inputs are there.
  struct Ready {
    std::int64_t time = 0;
    int missing = -1;  // an event that it waits for and that has not been; -1: none
  };
  [[nodiscard]] Ready ready(const Operation& operation) const {
    const UnitKey& key = operation.unit;
    const int group = graph_.number(key);
    const int unit = graph_.unit(group, key.stage);
    Ready result;
    if (is_forward(operation)) {
      wait_for_forward(key, group, unit, result);
    } else if (operation.kind == OperationKind::kBackwardWeight) {
      wait_for(backward_event(unit), result);
    } else {
      wait_for_backward(key, group, unit, result);
    }
    return result;
  }

  [[nodiscard]] std::size_t num_events() const { return finish_.size(); }

  struct Finish {
    std::int64_t time = 0;
    int event = -1;  // that others may wait for; -1: none
  };
  Finish finish(const Operation& operation, std::int64_t start) {
    const UnitKey& key = operation.unit;
    const int group = graph_.number(key);
    const int unit = graph_.unit(group, key.stage);
    Finish result;
    result.time =
        start + duration(operation.kind,
                         graph_.cost(graph_.group(group), stages_.number(key.module, key.stage)));
    if (operation.kind != OperationKind::kBackwardWeight) {
      result.event = is_forward(operation) ? forward_event(unit) : backward_event(unit);
      finish_[at(result.event)] = result.time;
    }
    return result;
  }

 private:
  static int forward_event(int unit) { return 2 * unit; }
  static int backward_event(int unit) { return 2 * unit + 1; }
  static std::int64_t duration(OperationKind kind, const GraphUnit& cost) {
    switch (kind) {
      case OperationKind::kForward:
        return cost.forward;
      case OperationKind::kBackward:
        return cost.backward();
      case OperationKind::kBackwardInput:
        return cost.backward_input;
      default:
        return cost.weight_half();
    }
  }

  void wait_for_forward(const UnitKey& key, int group, int unit, Ready& result) const {
    if (key.stage > 0) {
      wait_for(forward_event(unit - 1), result);
    } else if (key.module == stages_.llm) {
      for (const int source : graph_.sources_of(group)) {
        const int last = stages_.num_stages(graph_.group(source).module) - 1;
        wait_for(forward_event(graph_.unit(source, last)), result);
      }
    }
    for (const int before : graph_.earlier_of(group)) {
      wait_for(forward_event(graph_.unit(before, key.stage)), result);
    }
  }

  void wait_for_backward(const UnitKey& key, int group, int unit, Ready& result) const {
    wait_for(forward_event(unit), result);
    if (key.stage + 1 < stages_.num_stages(key.module)) {
      wait_for(backward_event(unit + 1), result);
    } else if (key.module != stages_.llm) {
      for (const int taker : graph_.served_by(graph_.group(group))) {
        wait_for(backward_event(graph_.unit(taker, 0)), result);
      }
    }
    for (const int after : graph_.later_of(group)) {
      wait_for(backward_event(graph_.unit(after, key.stage)), result);
    }
  }

  void wait_for(int event, Ready& result) const {
    if (finish_[at(event)] == kNotRun) {
      result.missing = event;
    }
    result.time = std::max(result.time, finish_[at(event)]);
  }

  const StageGraph& stages_;
  const ReplicaGraph& graph_;
  std::vector<std::int64_t> finish_;  // [event]
};

// Lists look at their next operation again only when what it waits for has been, and lanes choose
// anew only when they or one of their lists have changed.
class Merge {
 public:
  Merge(const OrderInputs& inputs, const std::vector<std::vector<Operation>>& lists, MergeRule rule)
      : lists_(lists),
        rule_(rule),
        finishes_(inputs),
        heads_(lists.size()),
        next_waiter_(lists.size(), -1),
        first_waiter_(finishes_.num_events(), -1),
        lanes_(inputs.plan.lanes.size()),
        starts_(inputs.plan.lanes.size(), kNever),
        orders_(inputs.plan.lanes.size()) {
    for (std::size_t list = 0; list < lists.size(); ++list) {
      if (!lists[list].empty()) {
        const UnitKey& unit = lists[list][0].unit;
        heads_[list].lane = inputs.plan.lane_of(unit.module, unit.stage);
        lanes_[at(heads_[list].lane)].lists.push_back(static_cast<int>(list));
        look_at(static_cast<int>(list));
      }
    }
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      choose(lane);
    }
  }

  LaneOrders run() {
    while (true) {
      std::size_t first = 0;
      for (std::size_t lane = 1; lane < lanes_.size(); ++lane) {
        if (starts_[lane] < starts_[first] ||
            (starts_[lane] == starts_[first] && before_at_equal_start(lane, first))) {
          first = lane;
        }
      }
      if (lanes_.empty() || starts_[first] == kNever) {
        break;
      }
      execute(first);
    }
    for (std::size_t list = 0; list < lists_.size(); ++list) {
      ENTRAIN_INVARIANT(heads_[list].next == lists_[list].size(),
                        "stage orders wait for each other");
    }
    return std::move(orders_);
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  struct Head {
    std::size_t next = 0;  // position in the list
    int lane = -1;
    Finishes::Ready ready;  // of the operation there
  };
  struct Lane {
    std::vector<int> lists;  // rising
    std::int64_t free = 0;
    bool wants_forward = false;  // alternating: the last one was a backward
    int chosen = -1;             // list
    int preference = 0;          // of its operation
  };

  [[nodiscard]] const Operation& operation_of(int list) const {
    return lists_[at(list)][heads_[at(list)].next];
  }

  // Finds out what the list's next operation waits for.
  void look_at(int list) {
    Head& head = heads_[at(list)];
    if (head.next == lists_[at(list)].size()) {
      return;
    }
    head.ready = finishes_.ready(operation_of(list));
    if (head.ready.missing >= 0) {
      int& waiter = first_waiter_[at(head.ready.missing)];
      next_waiter_[at(list)] = std::exchange(waiter, list);
    }
  }

  [[nodiscard]] int preference(const Lane& lane, const Operation& operation) const {
    const bool turned = rule_ == MergeRule::kAlternate && lane.wants_forward;
    return turned ? (is_forward(operation) ? 1 : 0) : urgency(operation);
  }

  void choose(std::size_t number) {
    Lane& lane = lanes_[number];
    lane.chosen = -1;
    starts_[number] = kNever;
    for (const int list : lane.lists) {
      const Head& head = heads_[at(list)];
      if (head.next == lists_[at(list)].size() || head.ready.missing >= 0) {
        continue;
      }
      const std::int64_t start = std::max(head.ready.time, lane.free);
      const int preferred = preference(lane, operation_of(list));
      if (start < starts_[number] || (start == starts_[number] && preferred >= lane.preference)) {
        lane.chosen = list;
        lane.preference = preferred;
        starts_[number] = start;
      }
    }
  }

  [[nodiscard]] bool before_at_equal_start(std::size_t a, std::size_t b) const {
    return std::pair(lanes_[a].preference, lanes_[a].chosen) >
           std::pair(lanes_[b].preference, lanes_[b].chosen);
  }

  void execute(std::size_t number) {
    Lane& lane = lanes_[number];
    const int list = lane.chosen;
    const Operation& operation = operation_of(list);
    ++heads_[at(list)].next;
    const Finishes::Finish finish = finishes_.finish(operation, starts_[number]);
    lane.free = finish.time;
    lane.wants_forward = !is_forward(operation);
    orders_[number].push_back(operation);
    look_at(list);
    if (finish.event >= 0) {
      int waiter = std::exchange(first_waiter_[at(finish.event)], -1);
      while (waiter >= 0) {
        const int next = next_waiter_[at(waiter)];
        look_at(waiter);
        choose(at(heads_[at(waiter)].lane));
        waiter = next;
      }
    }
    choose(number);
  }

  const std::vector<std::vector<Operation>>& lists_;
  MergeRule rule_;
  Finishes finishes_;
  std::vector<Head> heads_;        // [list]
  std::vector<int> next_waiter_;   // [list] that waits for the same event; -1: none
  std::vector<int> first_waiter_;  // [event] list; -1: none
  std::vector<Lane> lanes_;
  std::vector<std::int64_t> starts_;  // [lane] of its chosen operation; kNever: none
  LaneOrders orders_;
};

}  // namespace

LaneOrders merge_stage_orders(const OrderInputs& inputs,
                              const std::vector<std::vector<Operation>>& lists,
                              MergeRule rule) {
  return Merge(inputs, lists, rule).run();
}

}  // namespace entrain
