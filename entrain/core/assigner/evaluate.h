// Simulated step time of placements, one replica at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "entrain/core/assigner/path_gain.h"
#include "entrain/core/assigner/placement_edit.h"
#include "entrain/core/base/at.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/placement.h"
#include "entrain/core/graph/placement_graph.h"
#include "entrain/core/schedule/list_schedule.h"
#include "entrain/core/schedule/order_replay.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// One replica's part of a step, before it waits for the other replicas.
struct ReplicaTimes {
  bool done = false;            // false: later than `stop_after`; nothing else is known then
  std::int64_t total_ns = 0;    // latest finish of a lane including its reduction
  std::int64_t peak_bytes = 0;  // largest activation bytes of any lane; 0 where they do not matter
  double over = 0;              // by how much the worst lane exceeds its limit, as a share of it
  int rule = 0;                 // it was timed under: the position among the evaluator's

  [[nodiscard]] bool fits() const { return over == 0; }
  // Penalised time: a penalty for bytes over the limit gives a search a slope to descend.
  [[nodiscard]] double score() const { return static_cast<double>(total_ns) * (1 + 4 * over); }
};

// The rules to choose from.
enum class RuleSet : std::uint8_t {
  kAll,   // of the schedule
  kNear,  // the replica's own, and those that were at most 5 % slower than the fastest in the last
          // choice among all, for whatever replica
};

// Whether `a` is better than `b`: within the limits first, then nearer to them, then faster.
// Requires  both done.
bool better(const ReplicaTimes& a, const ReplicaTimes& b);

// Replicas synchronise only at the end of a step (reduction, clipping), so a change in one replica
// does not affect the times of the others.
//
// The schedule is replayed by the list scheduler on plain arrays. For `entrain` a replica is timed
// under one rule, that of the last choose_rule() or use_rule(); the program that is built in the
// end takes the fastest rule and is never slower.
class StepEvaluator {
 public:
  // `plan` and `costs` must outlive the evaluator.
  StepEvaluator(const Plan& plan, const StepCosts& costs);

  // Counts as one evaluation, or as a quarter where fixed orders are known (replayed_ns()) and
  // replayed, without peak_bytes where no lane has a limit.
  // Cost  O(units × stages + operations) of the replica; ~80 ns an operation, ~3 ns if replayed.
  ReplicaTimes evaluate(const Placement& placement,
                        int replica,
                        std::int64_t stop_after = std::numeric_limits<std::int64_t>::max());

  // Finds the fastest rule for this replica, of equals the first; one evaluation each. Returns its
  // times, or what is not done where all are later than `stop_after`; one slightly later may be
  // returned. Replicas without a choice use the last rule found.
  // Cost  that of evaluate() for the replica's last rule; others stop once they are slower.
  ReplicaTimes choose_rule(const Placement& placement,
                           int replica,
                           RuleSet among = RuleSet::kAll,
                           std::int64_t stop_after = std::numeric_limits<std::int64_t>::max());
  // The number of evaluations of choose_rule() among kNear.
  [[nodiscard]] int num_near_rules() const {
    return static_cast<int>(std::count(near_.begin(), near_.end(), 1)) + 1;
  }
  // The rule under which the replica was timed earlier.
  void use_rule(int replica, const ReplicaTimes& times) { rule_of_[at(replica)] = times.rule; }

  // Whether choose_rule() has a choice.
  [[nodiscard]] bool has_rules() const { return schedule_.choice == RuleChoice::kFastest; }

  // The replica's time in orders that an earlier evaluation found; 0 where none is known for groups
  // like the placement's. Exact where the schedule fixes the lanes' orders, which keeps the orders
  // of the last evaluations. Elsewhere orders may change, and those that were kept give a guess.
  //
  // Cost  that of PlacementGraph::place(); where orders are known, that of PlacementGraph::graph()
  //       and OrderReplay::length().
  std::int64_t replayed_ns(const Placement& placement, int replica);
  // The placement of the replica's last evaluation is the one that the next ones start from.
  void keep_orders(int replica);
  // Takes the replica's critical path in known orders, if there are any, for path_growth().
  void take_path(const Placement& placement, int replica);
  // PathGain::growth().
  std::array<std::int64_t, 2> path_growth(const PlacementEdit& edit, const std::array<int, 2>& of) {
    return path_.growth(edit, of);
  }
  // Whether the schedule fixes the lanes' orders whatever the times are.
  [[nodiscard]] bool fixed_orders() const;
  // Whether no orders are known of the replica, of whatever groups.
  [[nodiscard]] bool lacks_orders(int replica) const { return orders_[at(replica)].known.empty(); }

  // The step time that simulate() gives for the program of all replicas; an upper bound of it if
  // reductions overlap compute (StepCosts::reduce_buckets), computed as if they ran at the end.
  [[nodiscard]] std::int64_t step_ns(const std::vector<ReplicaTimes>& replicas) const;
  [[nodiscard]] int evaluations() const { return quarters_ / 4; }
  // Whether any lane has a limit of bytes.
  [[nodiscard]] bool has_limits() const {
    return std::any_of(
        limits_.begin(), limits_.end(), [](std::int64_t limit) { return limit > 0; });
  }

 private:
  struct ShapedOrders {
    std::uint64_t shape = 0;  // ReplicaGraph::shape()
    OrderReplay replay;
  };
  struct Orders {
    std::vector<ShapedOrders> known;
    std::size_t oldest = 0;
    ShapedOrders last;  // where orders are not fixed: of the last evaluation
  };

  // Sets shape_. The graph itself may be had by graph_of() afterwards.
  void place(const Placement& placement, int replica);
  const ReplicaGraph& graph_of(int replica);
  ReplicaTimes run_rule(const ReplicaGraph& graph, int rule, std::int64_t stop_after);
  ReplicaTimes run_first_that_fits(const ReplicaGraph& graph, std::int64_t stop_after);
  [[nodiscard]] ReplicaTimes times_of(const ListResult& result) const;
  void add_orders(int replica, const ReplicaTimes& times);
  [[nodiscard]] const OrderReplay* known_orders(int replica) const;
  void add_memory(const std::vector<std::int64_t>& peak, ReplicaTimes& times) const;

  const StepCosts& costs_;
  std::vector<std::int64_t> limits_;    // [lane] bytes, 0 = no limit
  std::vector<std::int64_t> lane_end_;  // [lane] reduction
  std::int64_t optimizer_ns_ = 0;       // of the slowest lane
  PlacementGraph graph_;
  ReplicaGraph chunked_;
  ListScheduler scheduler_;
  ListSchedule schedule_;
  std::vector<char> near_;      // [rule] RuleSet::kNear
  std::vector<int> rule_of_;    // [replica] into schedule_.rules
  std::vector<char> has_rule_;  // [replica] by choose_rule()
  std::uint64_t shape_ = 0;     // of the last placement
  bool in_chunks_ = false;      // whether that has any: its graph is chunked_
  std::vector<Orders> orders_;  // [replica]
  std::vector<std::int64_t> scratch_;
  PathGain path_;
  int quarters_ = 0;  // of evaluations
};

}  // namespace entrain
