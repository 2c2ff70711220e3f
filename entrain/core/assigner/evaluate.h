// Simulated step time of placements, one replica at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "entrain/core/assigner/path_growth.h"
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
  std::int64_t peak_bytes = 0;  // largest activation bytes of any lane; 0 if none is limited
  double over = 0;              // by how much the worst lane exceeds its limit, as a share of it
  int rule = 0;                 // it was timed under: the position among the evaluator's

  [[nodiscard]] bool fits() const { return over == 0; }
  // Penalised time: a penalty for bytes over the limit gives a search a slope to descend.
  [[nodiscard]] double score() const { return static_cast<double>(total_ns) * (1 + 4 * over); }
};

// The rules to choose from.
enum class RuleSet : std::uint8_t {
  kAll,      // of the schedule
  kFastest,  // the same, but what is near stays what it was
  kNear,     // the replica's own, and those that were at most 5 % slower than the fastest in the
             // last choice among kAll, for whatever replica
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
  static constexpr std::int64_t kUsualOperations = 800;  // of a simulation, as budgets count them

  // `plan` and `costs` must outlive the evaluator.
  StepEvaluator(const Plan& plan, const StepCosts& costs)
      : StepEvaluator(plan, costs, PlacementGraph(plan, costs)) {}
  // Another one for the plan and costs of `like`, which another thread may use beside it.
  StepEvaluator(const Plan& plan, const StepCosts& costs, const StepEvaluator& like)
      : StepEvaluator(plan, costs, like.graph_.fresh()) {}
  StepEvaluator(const StepEvaluator&) = delete;  // its parts refer to each other
  StepEvaluator& operator=(const StepEvaluator&) = delete;

  // Counts as one evaluation. Where fixed_orders() are known of groups like the placement's, they
  // are replayed instead of simulated.
  // Cost  O(units × stages + operations) of the replica; ~50 ns an operation, ~3 ns if replayed.
  ReplicaTimes evaluate(const Placement& placement,
                        int replica,
                        std::int64_t stop_after = std::numeric_limits<std::int64_t>::max());

  // The same of the placement that the replica had in its last call of whatever function, for
  // keep_chain().
  ReplicaTimes evaluate_placed(int replica, std::int64_t stop_after);

  // Finds the fastest rule for this replica, of equals the first; one evaluation each. Returns its
  // times, or what is not done where all are later than `stop_after`; one slightly later may be
  // returned. Replicas without a choice use the last rule found.
  // Cost  that of evaluate() for the replica's last rule; others stop once they are slower.
  ReplicaTimes choose_rule(const Placement& placement,
                           int replica,
                           RuleSet among = RuleSet::kAll,
                           std::int64_t stop_after = std::numeric_limits<std::int64_t>::max());
  // Whether the replica keeps the limits under one of the rules.
  // Cost  that of evaluate() for each rule up to the first that does.
  bool fits(const Placement& placement, int replica);
  // The number of evaluations of choose_rule() among kNear.
  [[nodiscard]] int num_near_rules() const {
    return static_cast<int>(std::count(near_.begin(), near_.end(), 1)) + 1;
  }
  // The rule under which the replica was timed earlier.
  void use_rule(int replica, const ReplicaTimes& times) { rule_of_[at(replica)] = times.rule; }

  // Every replica's rule, and those that are near, from an evaluator of the same plan.
  void use_rules_of(const StepEvaluator& other);

  // Whether choose_rule() has a choice.
  [[nodiscard]] bool has_rules() const { return schedule_.choice == RuleChoice::kFastest; }

  // The placement of the replica's last evaluate_placed() is the one that the next edits start
  // from.
  void keep_chain(const Placement& placement, int replica);
  // evaluate() and keep_chain() of a placement.
  ReplicaTimes find_chain(const Placement& placement, int replica);
  // By how much an edit makes the path that was kept longer; where orders are found it is a guess.
  std::int64_t path_growth(const PlacementEdit& edit, int replica) {
    return path_.of(edit, replica);
  }
  // Takes the edited placement for evaluate_placed(). Whether its groups are those of a path that
  // is known: of the kept one, or, where the schedule fixes orders, of one that can be replayed.
  // Requires  the replica's last find_chain(), or keep_chain(), was of the placement before the
  //           edit.
  bool place_known(const PlacementEdit& edit, int replica);
  // Whether the schedule fixes the lanes' orders whatever the times are.
  [[nodiscard]] bool fixed_orders() const;

  // The step time that simulate() gives for the program of all replicas; an upper bound of it if
  // reductions overlap compute (StepCosts::reduce_buckets), computed as if they ran at the end.
  [[nodiscard]] std::int64_t step_ns(const std::vector<ReplicaTimes>& replicas) const;
  // The same where the slowest replica takes so long.
  [[nodiscard]] std::int64_t step_ns(std::int64_t slowest_ns) const {
    return slowest_ns + optimizer_ns_;
  }
  // Those asked for. Large ones count as several: all together count as usual_simulations(), two
  // thirds of them where lanes have limits, whose constructions need more.
  [[nodiscard]] int evaluations() const {
    return std::max(evaluations_, usual_simulations() * (has_limits() ? 2 : 3) / 3);
  }
  // Those that were not replays.
  [[nodiscard]] int simulations() const { return simulations_; }
  // All operations that were simulated, and a twentieth of all operations and messages that were
  // replayed, in evaluations of kUsualOperations.
  [[nodiscard]] int usual_simulations() const {
    return static_cast<int>((scheduler_.operations() + replayed_ / 20) / kUsualOperations);
  }
  // Whether any lane has a limit of bytes.
  [[nodiscard]] bool has_limits() const {
    return std::any_of(
        limits_.begin(), limits_.end(), [](std::int64_t limit) { return limit > 0; });
  }

 private:
  StepEvaluator(const Plan& plan, const StepCosts& costs, PlacementGraph graph);

  template <class Of>
  struct Shaped {
    std::uint64_t shape = 0;  // of PlacementGraph::place(); 0: nothing
    Of of;
  };
  struct Orders {
    std::uint64_t shape = 0;  // of the last placement
    bool in_chunks = false;   // whether that has any: its graph is `chunked`, of `groups`
    std::vector<ModuleGroups> groups;
    ReplicaGraph chunked;                    // without costs until it is asked for
    Shaped<CriticalChain> last;              // of the last evaluate_placed(), if that was done
    std::uint64_t kept = 0;                  // shape of the kept path; 0: none
    std::vector<Shaped<OrderReplay>> known;  // if fixed; steps alone until they are replayed
    std::size_t oldest = 0;
  };

  // Takes the placement. The graph itself may be had by graph_of() afterwards.
  void place(const Placement& placement, int replica);
  void place(const PlacementEdit& edit, int replica);
  void place_chunks(const Placement& placement, int replica);
  const ReplicaGraph& graph_of(int replica);
  ReplicaTimes run_rule(const ReplicaGraph& graph, int rule, std::int64_t stop_after);
  ReplicaTimes run_first_that_fits(const ReplicaGraph& graph, std::int64_t stop_after);
  [[nodiscard]] ReplicaTimes times_of(const ListResult& result) const;
  ReplicaTimes time_placed(int replica, std::int64_t stop_after);
  ReplicaTimes simulate(const ReplicaGraph& graph, int replica, std::int64_t stop_after);
  ReplicaTimes replay(const ReplicaGraph& graph, OrderReplay& orders, std::int64_t stop_after);
  [[nodiscard]] OrderReplay* known_orders(int replica);
  void keep_orders(int replica);
  void add_memory(const std::vector<std::int64_t>& peak_bytes, ReplicaTimes& times) const;

  const StepCosts& costs_;
  std::vector<std::int64_t> limits_;    // [lane] bytes, 0 = no limit
  std::vector<std::int64_t> lane_end_;  // [lane] reduction
  std::int64_t optimizer_ns_ = 0;       // of the slowest lane
  PlacementGraph graph_;
  ListScheduler scheduler_;
  ListSchedule schedule_;
  std::vector<char> near_;      // [rule] RuleSet::kNear
  std::vector<int> rule_of_;    // [replica] into schedule_.rules
  std::vector<char> has_rule_;  // [replica] by choose_rule()
  std::vector<Orders> orders_;  // [replica]
  std::vector<std::int64_t> node_times_;
  PathGrowth path_;
  int evaluations_ = 0;
  int simulations_ = 0;
  std::int64_t replayed_ = 0;  // operations and messages
};

}  // namespace entrain
