// List scheduling: which operation a lane runs next, by a rule (rules.h).
//
// Read first: ListScheduler::run(). One scheduler for every order, and, on plain arrays, the clock
// of the assigner's search, to the nanosecond of the simulator.
//
// Orders that are found: lanes decide in order of time. A lane's candidates are the first forward
// and the first backward that each of its stages has left. It takes, of those whose inputs have
// arrived,
// - a backward (or, on encoder stages with `encoder_forward_first`, a forward) before the other;
// - a weight gradient that was split off when it would otherwise wait: for something not yet known,
//   or for at least half of the weight gradient's time;
// - of several stages' equals the one nearest to the loss.
// A split backward is fused again if one of its halves costs nothing, or if its recomputed layers
// do not fit into memory until the weight half. A backward without dependents
// (no input gradient) ranks like a weight gradient.
//
// A forward of slot k is open when k <= t + window, t the turn of the stage's oldest backward that
// is not done (its weight half included), and when its bytes fit the lane's limit, beside what any
// whole backward on the lane recomputes at a time. The window alone
// cannot deadlock: with window >= warm-up, 1F1B's own order stays possible. The limit can: then
// nothing is left to decide, and the result says so.
//
// Orders that are fixed (in_order): a turn's backwards run in the order in which their gradients
// are completed. A lane of one stage runs its turns. A lane of all stages takes the warm-up of the
// LLM's last stage and runs whole slots: "forward of slot t" is every encoder group that LLM slot t
// is the first to need, through all its stages, then the LLM; "backward" is the LLM's, then that of
// the released groups. Lanes of some stages: ListRule::ignore_transfers. ListRule::order names an
// order that is replayed as it is.
//
// No cycle: deferral moves no backward before its forward (parts k→t have k <= t), nor does a later
// turn for the backward of chunks, all stages run a turn's backwards in one order, and with
// warm_up(stage) >= warm_up(next stage) + 1, or all equal to the number of slots, every stage runs
// the forward that its follower needs in turn t no later than its own turn t - 1. A stage with
// warm-up w whose weight halves run d turns late never holds more than one with warm-up w + d and
// whole backwards.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/graph/lane_clock.h"
#include "entrain/core/graph/step_graph.h"
#include "entrain/core/schedule/order_replay.h"
#include "entrain/core/schedule/rules.h"
#include "entrain/core/spec/program.h"

namespace entrain {

// Activation bytes that the plan allows each lane, 0 = no limit. [lane]
std::vector<std::int64_t> lane_limits(const Plan& plan);

// Time that follows each lane's last operation: its gradients' reduction. [lane]
std::vector<std::int64_t> lane_end_times(const Plan& plan, const StepCosts& costs);

struct ListResult {
  bool done = false;                     // every operation ran, within `stop_after`
  bool stuck = false;                    // nothing could run: the byte limit is too small
  std::vector<std::int64_t> finish_ns;   // [lane] end of its last operation
  std::vector<std::int64_t> peak_bytes;  // [lane] as LaneUsage::peak_bytes; 0 if none is limited
};

// Those that may differ in their orders on these stages, each once, in the order given.
std::vector<ListRule> distinct_rules(const StageGraph& stages, const std::vector<ListRule>& rules);

class ListScheduler {
 public:
  // `stages` must outlive the scheduler. lane_limits: [lane] bytes, 0 = no limit.
  ListScheduler(const StageGraph& stages, std::vector<std::int64_t> lane_limits);

  // Ensures  a pure function of its arguments; integers only; with `orders` (one list per lane) the
  //          operations in the order in which they run. Results are those of simulate() for the
  //          program of that order.
  // Returns  early, with done = false, once some lane cannot finish, reduction of `lane_end`
  //          included, by `stop_after`.
  //          Stuck, too, where an order is to be found and takes 2^49 ns (six days) or more on up
  //          to 1800 stages.
  // Cost     O(operations × log lanes), a few tens of nanoseconds an operation; O(operations) where
  //          the rule fixes every lane's order; no allocation after the first calls of a size
  //          unless `orders` are requested.
  const ListResult& run(const ReplicaGraph& graph,
                        const ListRule& rule,
                        std::vector<std::vector<Operation>>* orders = nullptr,
                        std::int64_t stop_after = std::numeric_limits<std::int64_t>::max());

  // Whether the rule fixes every lane's order whatever the times are.
  [[nodiscard]] bool fixes_orders(const ListRule& rule) const {
    return one_stage_a_lane_ && rule.in_order && rule.order == nullptr;
  }
  // Of the last run(), which was done: length() with that run's graph is the replica's time.
  //
  // Requires  that graph has not changed since.
  // Cost      O(operations), some nanoseconds each; of a second call none.
  const OrderReplay& replay();
  // The steps alone, without that cost.
  [[nodiscard]] const std::vector<OrderReplay::Step>& steps() const { return replay_.steps; }
  // Fills nodes and ends of a replay that has the steps() of a run, with a graph of that shape(),
  // where they are not there yet.
  void link(const ReplicaGraph& graph, OrderReplay& replay) const;
  // [lane] as ListResult::peak_bytes, of the replay of a run of fixes_orders().
  const std::vector<std::int64_t>& replayed_bytes(const ReplicaGraph& graph,
                                                  const OrderReplay& replay);

  // Operations that all runs have decided on.
  [[nodiscard]] std::int64_t operations() const { return operations_; }

  // Time that follows the last operation of a lane (its reduction). [lane], zeros at first.
  void set_lane_end(std::vector<std::int64_t> lane_end) { lane_end_ = std::move(lane_end); }

 private:
  enum class Choice : std::uint8_t { kForward, kBackward, kWeight, kNone };
  static constexpr int kChoices = 3;
  static constexpr int kLastSlot = std::numeric_limits<int>::max() / 2;  // no slot is later
  struct Turn {
    int stage = 0;  // number
    Choice choice = Choice::kNone;
  };
  struct StageState {
    int next_forward = 0;      // group
    int end = 0;               // groups of the module
    int next_backward = 0;     // position in backward_order
    int next_weight = 0;       // into `weights`
    std::vector<int> weights;  // groups whose backward has run and whose weight half has not
    int window = 0;            // slots; -1: any
    // Orders that are found: its next forward and backward, into unit_, the last one for none.
    int forward = 0;
    int backward = 0;
    int slot = 0;           // of the forward
    int backward_turn = 0;  // of the backward
    int last_slot = 0;      // that is open by the window
    bool opens = false;     // whether the forward may run when it is ready
    bool urgent = false;    // the backward: it goes before weight gradients
    bool weight_left = false;
    std::array<int, kChoices> rank{};  // [choice] see turns_
    // Orders that are fixed:
    int turn = 0;
    int delay = 0;                // turns between input and weight halves
    bool halves = false;          // backwards are split
    Choice next = Choice::kNone;  // see advance()
  };
  struct LaneWork {
    std::int64_t left = 0;       // remaining work of its operations
    std::int64_t recompute = 0;  // largest recomputation of a whole backward
    std::int64_t limit = 0;      // bytes, if the rule obeys them; 0: none
    // Decisions: the first operation, and weight gradients for the time that it waits.
    std::int64_t best = 0;
    std::int64_t spare = 0;
    bool wants_forward = false;  // ListRule::alternate: its last operation was a backward
  };
  struct UnitState {
    std::int64_t forward_ready = 0;
    std::int64_t backward_ready = 0;
  };
  // LLM groups: encoder groups still to arrive; encoder groups: LLM groups still to run backward.
  struct GroupState {
    int missing = 0;
    std::int64_t latest = 0;
  };

  void run_rule(const ReplicaGraph& graph, const ListRule& rule, std::int64_t stop_after);
  void start(const ReplicaGraph& graph, const ListRule& rule);
  void finish(bool late);
  // Turns: sets what the stage runs next.
  void advance(int stage);
  void set_weight_delays();
  // All of these run until nothing is left to run.
  // Returns  false where a lane cannot finish by `stop_after`.
  bool run_by_time(std::int64_t stop_after);
  // Where no lane has a choice: each as far as its inputs are there.
  bool run_by_lane(bool given, std::int64_t stop_after);
  void give(const LaneOrders& orders);  // fills given_
  // A lane of all stages, slot by slot.
  bool run_whole_slots(std::int64_t stop_after);
  void run_all_forwards(int group);  // through its module's stages
  void run_all_backwards(int group);
  // ListRule::ignore_transfers, on lanes of some stages, after a run without transfers: lanes keep
  // its orders. Transfers can only make them later.
  void add_transfers(std::int64_t stop_after);
  enum class Outcome : std::uint8_t { kRan, kWaits, kLate };
  Outcome run_next(int lane, const Turn& turn, std::int64_t stop_after);
  Outcome run_stage(int lane, std::int64_t stop_after);
  Outcome run_given(int lane, std::int64_t stop_after);
  // Fill `rank` and turns_:
  void rank_by_lane();
  void rank_by_preference();
  [[nodiscard]] int preference(int stage, Choice choice, int after) const;
  void link_groups();
  void count_work();
  // Takes note of the stage's next operations, after one of a kind has run.
  void look_ahead(int stage, Choice choice);
  // What the lane runs next, after it has run something.
  void decide(int lane);
  // The input of the next operation of a kind on its stage has arrived, from a lane.
  void offer(const Turn& turn, int from, std::int64_t ready);
  void settle(int lane);  // chooses between `best` and `spare`
  [[nodiscard]] std::int64_t decision(const StageState& state,
                                      Choice choice,
                                      std::int64_t time) const {
    return (time << rank_bits_) + state.rank[static_cast<std::size_t>(choice)];
  }
  [[nodiscard]] const Turn& turn_of(std::int64_t number) const {
    return turns_[at(number & ((std::int64_t{1} << rank_bits_) - 1))];
  }
  [[nodiscard]] bool next_backward_is(int stage, int group) const;
  [[nodiscard]] bool bytes_open(int stage, int group) const;
  [[nodiscard]] std::int64_t features_of(int group) const;
  [[nodiscard]] bool splits(const UnitAt& unit, std::int64_t made) const;
  [[nodiscard]] int next_group(const StageState& state, Choice choice) const;
  void perform(const Turn& turn, std::int64_t start);
  void run_forward(const UnitAt& unit, std::int64_t start);
  void run_backward(const UnitAt& unit, std::int64_t start);
  void run_weight(const UnitAt& unit, std::int64_t start);
  void receive_features(int group);
  void send_forward(const UnitAt& unit, std::int64_t finish);
  void send_backward(const UnitAt& unit, std::int64_t finish);
  void skip_without_backward(int stage);
  std::int64_t transfer(int stage, bool gradient, std::int64_t start, const GraphGroup& group);
  void list_orders(std::vector<std::vector<Operation>>& orders) const;

  const StageGraph& stages_;
  bool one_stage_a_lane_;
  std::vector<std::int64_t> limits_;
  bool limited_ = false;  // any lane
  std::vector<std::int64_t> lane_end_;
  const ReplicaGraph* graph_ = nullptr;
  ListRule rule_;
  bool merging_ = false;  // transfers take no time yet, see add_transfers()
  bool fixed_ = false;    // run_by_lane() is running: nothing to decide
  std::int64_t operations_ = 0;
  ListResult result_;
  std::vector<StageState> stage_;
  std::vector<LaneWork> lane_;
  OrderReplay replay_;  // its steps; the nodes once they are asked for
  std::vector<std::int64_t> node_times_;
  ReplicaClock clock_;
  // A decision is one number: its time, and in the last bits its rank among those of one time, into
  // turns_. The smallest goes first. Times are less than never_, none_ is a decision at that time.
  int rank_bits_;
  std::int64_t never_;
  std::int64_t none_;
  std::vector<Turn> turns_;
  // A binary tree of lanes' decisions, the smaller of two children in their parent: the first
  // lane's at 1, lane i's at leaves_ + i.
  std::size_t leaves_;
  std::vector<std::int64_t> next_;
  std::vector<int> runnable_;          // run_by_lane(): lanes to check; may contain one twice
  std::vector<std::size_t> position_;  // likewise: [lane] operations that have run
  std::vector<UnitState> unit_;
  std::vector<GroupState> group_;
  std::vector<std::int64_t> link_free_;  // [2 × stage number + gradient]
  std::vector<int> received_;            // [module] encoder groups received on the LLM's first lane
  std::vector<std::vector<Turn>> given_;  // ListRule::order: [lane][position]
};

// What every operation calls.

inline int ListScheduler::next_group(const StageState& state, Choice choice) const {
  switch (choice) {
    case Choice::kForward:
      return state.next_forward;
    case Choice::kBackward:
      return graph_->backward_order[at(state.next_backward)];
    default:
      return state.weights[at(state.next_weight)];
  }
}

inline void ListScheduler::settle(int lane) {
  const std::int64_t spare = lane_[at(lane)].spare;
  std::int64_t first = lane_[at(lane)].best;
  const std::int64_t wait = (first >> rank_bits_) - (spare >> rank_bits_);
  if (wait > 0) {
    const Turn& turn = turn_of(spare);
    const GraphGroup& group = graph_->group(next_group(stage_[at(turn.stage)], turn.choice));
    if (2 * wait >= graph_->cost(group, turn.stage).backward_weight) {
      first = spare;
    }
  }
  for (std::size_t node = leaves_ + at(lane); node > 1; node /= 2) {
    next_[node] = first;
    first = std::min(first, next_[node ^ 1]);
  }
  next_[1] = first;
}

inline void ListScheduler::offer(const Turn& turn, int from, std::int64_t ready) {
  const StageState& state = stage_[at(turn.stage)];
  const bool forward = turn.choice == Choice::kForward;
  const int lane = stages_.stages[at(turn.stage)].lane;
  if (lane == from) {
    return;  // it decides afterwards
  }
  if (fixed_) {
    runnable_.push_back(lane);
  } else if (forward ? state.opens : !rule_.in_order || state.next == Choice::kBackward) {
    std::int64_t& into = forward || state.urgent ? lane_[at(lane)].best : lane_[at(lane)].spare;
    into = std::min(into, decision(state, turn.choice, std::max(clock_.lane(lane).time, ready)));
    settle(lane);
  }
}

// Arrival of a unit's message over the edge after a stage.
inline std::int64_t ListScheduler::transfer(int stage,
                                            bool gradient,
                                            std::int64_t start,
                                            const GraphGroup& group) {
  if (!stages_.stages[at(stage)].crosses) {
    return start;
  }
  std::int64_t& free = link_free_[2 * at(stage) + (gradient ? 1 : 0)];
  free = std::max(start, free) + (merging_ ? 0 : graph_->cost(group, stage).transfer_ns);
  return free;
}

inline void ListScheduler::advance(int stage) {
  StageState& of = stage_[at(stage)];
  for (;; ++of.turn) {
    const bool forward_left = of.next_forward < of.end;
    const bool backward_left = of.next_backward < of.end;
    if (forward_left &&
        (of.window < 0 || graph_->groups[at(of.next_forward)].slot <= of.turn + of.window)) {
      of.next = Choice::kForward;
      return;
    }
    if (backward_left && graph_->groups[at(next_group(of, Choice::kBackward))].turn <= of.turn) {
      of.next = Choice::kBackward;
      return;
    }
    if (at(of.next_weight) < of.weights.size()) {
      const int turn = graph_->groups[at(next_group(of, Choice::kWeight))].turn;
      if (turn <= of.turn - of.delay || !(forward_left || backward_left)) {
        of.next = Choice::kWeight;
        return;
      }
    }
    if (!forward_left && !backward_left) {
      of.next = Choice::kNone;
      return;
    }
  }
}

// Moves a stage's backward pointer over groups that take none at it.
inline void ListScheduler::skip_without_backward(int stage) {
  StageState& state = stage_[at(stage)];
  const int index = stages_.stages[at(stage)].stage;
  while (state.next_backward < state.end &&
         graph_->groups[at(graph_->backward_order[at(state.next_backward)])].first_backward >
             index) {
    ++state.next_backward;
  }
}

inline bool ListScheduler::next_backward_is(int stage, int group) const {
  const StageState& state = stage_[at(stage)];
  return state.next_backward < state.end &&
         graph_->backward_order[at(state.next_backward)] == group;
}

}  // namespace entrain
