// Simulated step time of placements, one replica at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/placement.h"
#include "entrain/core/graph/placement_graph.h"
#include "entrain/core/schedule/critical_chain.h"
#include "entrain/core/schedule/list_schedule.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// One replica's part of a step, before it waits for the other replicas.
struct ReplicaTimes {
  bool done = false;            // false: later than `stop_after`; nothing else is known then
  std::int64_t total_ns = 0;    // latest finish of a lane including its reduction
  std::int64_t peak_bytes = 0;  // largest activation bytes of any lane
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

  // Counts as one evaluation.
  // Cost  O(units × stages + operations) of the replica; ~30 ns an operation.
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

  // The length, with the placement's costs, of the longest chain known of the replica; 0 where none
  // is of groups like the placement's. Where the schedule fixes the lanes' orders, the replica
  // takes no less, and the chains of the last evaluations are known. Elsewhere orders may change,
  // and the chain that was kept is a guess.
  //
  // Cost  that of PlacementGraph::place(); where a chain is known of the placement's groups, that
  // of
  //       PlacementGraph::graph() and O(terms) of the known chains.
  std::int64_t chain_ns(const Placement& placement, int replica);
  // The placement of the replica's last evaluation is the one that the next ones start from.
  void keep_chain(int replica);
  // Whether the schedule fixes the lanes' orders whatever the times are.
  [[nodiscard]] bool fixed_orders() const;
  // Whether no chain is known of the replica, of whatever groups.
  [[nodiscard]] bool lacks_chain(int replica) const { return chains_[at(replica)].known.empty(); }

  // The step time that simulate() gives for the program of all replicas; an upper bound of it if
  // reductions overlap compute (StepCosts::reduce_buckets), computed as if they ran at the end.
  [[nodiscard]] std::int64_t step_ns(const std::vector<ReplicaTimes>& replicas) const;
  [[nodiscard]] int evaluations() const { return evaluations_; }
  // Whether any lane has a limit of bytes.
  [[nodiscard]] bool has_limits() const {
    return std::any_of(
        limits_.begin(), limits_.end(), [](std::int64_t limit) { return limit > 0; });
  }

 private:
  struct ShapedChain {
    std::uint64_t shape = 0;  // ReplicaGraph::shape()
    CriticalChain chain;
  };
  struct Chains {
    std::vector<ShapedChain> known;
    std::size_t oldest = 0;
    ShapedChain last;  // where orders are not fixed: of the last evaluation
  };

  // Sets shape_. The graph itself may be had by graph_of() afterwards.
  void place(const Placement& placement, int replica);
  const ReplicaGraph& graph_of(int replica);
  ReplicaTimes run_rule(const ReplicaGraph& graph, int rule, std::int64_t stop_after);
  ReplicaTimes run_first_that_fits(const ReplicaGraph& graph, std::int64_t stop_after);
  [[nodiscard]] ReplicaTimes times_of(const ListResult& result) const;
  void add_chain(int replica, const ReplicaTimes& times);
  void add_memory(std::size_t lane, std::int64_t bytes, ReplicaTimes& times) const;

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
  std::vector<Chains> chains_;  // [replica]
  int evaluations_ = 0;
};

}  // namespace entrain
