// The policy `entrain`.
//
// 1. Samples to replicas, balanced on every module's heaviest lane.
// 2. For each replica a few dozen rules (number of slots, shape of their sizes, text-only slots at
//    the ends, segments spread), each constructed greedily and simulated; the fastest is kept.
//    Where the schedule is found rather than fixed, its own rule is chosen along the way.
// 3. `sequential` and `lpt-2d` compete with the result.
// 4. Local search from the best (search.h) with what is left of the budget of evaluations.
#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "entrain/core/assigner/evaluate.h"
#include "entrain/core/assigner/greedy.h"
#include "entrain/core/assigner/loads.h"
#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/assigner/policies.h"
#include "entrain/core/assigner/search.h"
#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// Finds the rule for one replica; the placement keeps the best one's slots.
class RuleChooser {
 public:
  RuleChooser(const AssignRequest& request,
              const BatchLoads& loads,
              StepEvaluator& evaluator,
              int replica,
              Placement& placement)
      : request_(request),
        loads_(loads),
        evaluator_(evaluator),
        replica_(replica),
        placement_(placement),
        num_samples_(static_cast<int>(placement.samples[at(replica)].size())) {
    for (const int sample : placement.samples[at(replica)]) {
      num_text_ += loads.text_only[at(sample)];
    }
  }

  // Tries rules until evaluator.evaluations() reaches `budget`; the first one always.
  ReplicaTimes run(int budget) {
    budget_ = budget;
    best_.num_slots = std::min(request_.plan->num_slots, num_samples_);
    best_.shape = request_.options.shape ? SlotShape::kTriangle : SlotShape::kFlat;
    place(best_);
    times_ = evaluator_.evaluate(placement_, replica_);
    choose_order();
    if (request_.options.choose_slots) {
      choose_slots();
    }
    if (request_.options.shape) {
      choose_shape();
    }
    if (request_.options.slot_order && !loads_.unit.empty()) {
      choose_ratio_order();
    }
    choose_order();
    if (request_.options.shape && !best_.by_ratio) {
      choose_text_slots();
    }
    if (request_.options.defer && request_.options.split_segments && !best_.by_ratio) {
      SlotRule rule = best_;
      rule.spread_segments = true;
      consider(rule);
    }
    if (!times_.fits()) {
      least_memory();
    }
    place(best_);
    return times_;
  }

 private:
  void place(const SlotRule& rule) {
    place_in_slots(
        loads_, *request_.costs, replica_, rule, request_.plan->limits.max_deferral, placement_);
    if (!request_.options.slot_order) {
      shuffle_slots(rule.num_slots);
    }
  }

  // For the ablation of the order of slots.
  void shuffle_slots(int num_slots) {
    std::vector<int> to(at(num_slots));
    for (int slot = 0; slot < num_slots; ++slot) {
      to[at(slot)] = slot;
    }
    Rng rng(request_.seed, hash_of("assigner/slot-order"));
    rng.shuffle(std::span<int>(to));
    for (const int sample : placement_.samples[at(replica_)]) {
      place_sample(*request_.costs, sample, to[at(placement_.llm_slot[at(sample)])], placement_);
    }
  }

  // Bytes over the limit first, then time.
  [[nodiscard]] static bool better(const ReplicaTimes& a, const ReplicaTimes& b) {
    if (!a.fits() || !b.fits()) {
      return a.fits() || (!b.fits() && a.over < b.over);
    }
    return a.total_ns < b.total_ns;
  }

  // Where the schedule leaves a choice: the rule by which lanes are ordered.
  void choose_order() {
    if (evaluator_.evaluations() < budget_) {
      place(best_);
      times_ = evaluator_.choose_rule(placement_, replica_);
    }
  }

  void consider(const SlotRule& rule) {
    if (evaluator_.evaluations() >= budget_ || rule == best_ ||
        rule.text_front + rule.text_back >= rule.num_slots) {
      return;
    }
    place(rule);
    // What is over the limit may be slower and still better.
    const std::int64_t stop_after =
        times_.fits() ? times_.total_ns : std::numeric_limits<std::int64_t>::max();
    const ReplicaTimes times = evaluator_.evaluate(placement_, replica_, stop_after);
    if (times.done && better(times, times_)) {
      best_ = rule;
      times_ = times;
    }
  }

  // From a few, which giants like, up to one sample a slot.
  [[nodiscard]] std::vector<int> slot_counts() const {
    const int lanes = request_.plan->num_lanes();
    std::vector<int> counts = {std::min(num_samples_, 3), std::min(num_samples_, 5)};
    for (const int halves : {2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32}) {
      counts.push_back(std::min(num_samples_, std::max(1, lanes * halves / 2)));
    }
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    return counts;
  }

  void choose_slots() {
    SlotRule rule = best_;
    for (const int count : slot_counts()) {
      rule.num_slots = count;
      if (rule.num_slots != request_.plan->num_slots) {
        consider(rule);
      }
    }
  }

  void choose_shape() {
    const int num_slots = best_.num_slots;
    for (const SlotShape shape : kSlopedShapes) {
      SlotRule rule = best_;
      rule.shape = shape;
      rule.num_slots = num_slots;
      consider(rule);
      if (request_.options.choose_slots) {
        rule.num_slots = std::min(num_samples_, num_slots + (num_slots + 2) / 4);
        consider(rule);
        rule.num_slots = std::max(1, num_slots - (num_slots + 2) / 4);
        consider(rule);
      }
    }
    SlotRule rule = best_;
    rule.shape = SlotShape::kFlat;
    consider(rule);
  }

  void choose_ratio_order() {
    const int num_slots = best_.num_slots;
    const SlotShape shape = best_.shape;
    for (const SlotShape tried : {shape, SlotShape::kRootTriangle, SlotShape::kFlat}) {
      SlotRule rule;
      rule.by_ratio = true;
      rule.shape = request_.options.shape ? tried : SlotShape::kFlat;
      rule.num_slots = num_slots;
      consider(rule);
      if (request_.options.choose_slots) {
        rule.num_slots = std::min(num_samples_, num_slots + (num_slots + 1) / 2);
        consider(rule);
        rule.num_slots = std::max(1, num_slots - (num_slots + 2) / 3);
        consider(rule);
      }
    }
  }

  void choose_text_slots() {
    if (num_text_ == 0 || num_text_ == num_samples_) {
      return;
    }
    const int encoder_stages =
        request_.plan->num_lanes() - static_cast<int>(request_.plan->modules.back().stages.size());
    for (const int front : {1, encoder_stages / 2, encoder_stages}) {
      SlotRule rule = best_;
      rule.text_front = std::max(1, front);
      rule.text_back = 0;
      consider(rule);
      rule.text_back = rule.text_front;
      consider(rule);
    }
  }

  // One sample a slot keeps the fewest bytes in flight.
  void least_memory() {
    budget_ += static_cast<int>(kSlopedShapes.size()) + 1;
    SlotRule rule;
    rule.num_slots = request_.options.choose_slots ? num_samples_ : best_.num_slots;
    for (const SlotShape shape : kSlopedShapes) {
      rule.shape = shape;
      consider(rule);
    }
    rule.shape = SlotShape::kFlat;
    consider(rule);
  }

  const AssignRequest& request_;
  const BatchLoads& loads_;
  StepEvaluator& evaluator_;
  int replica_;
  Placement& placement_;
  int num_samples_;
  int num_text_ = 0;
  int budget_ = 0;
  SlotRule best_;
  ReplicaTimes times_;  // of best_
};

Evaluated evaluated(const AssignRequest& request, Placement placement, StepEvaluator& evaluator) {
  Evaluated result{std::move(placement), {}};
  for (int replica = 0; replica < request.plan->replicas; ++replica) {
    result.times.push_back(evaluator.evaluate(result.placement, replica));
  }
  return result;
}

// Loads of encoders alone, but for samples without any: for the ablation of the joint start.
BatchLoads encoder_only(const BatchLoads& loads, const StepCosts& costs) {
  BatchLoads result = loads;
  for (int sample = 0; sample < costs.num_samples; ++sample) {
    for (std::size_t d = 0; d < result.sample[at(sample)].size(); ++d) {
      if (loads.text_only[at(sample)] == 0) {
        result.sample[at(sample)][d] -= loads.llm[at(sample)][d];
      }
    }
  }
  return result;
}

Evaluated construct(const AssignRequest& request,
                    const BatchLoads& loads,
                    int budget,
                    StepEvaluator& evaluator) {
  const int replicas = request.plan->replicas;
  const int first = evaluator.evaluations();
  Evaluated result;
  result.placement = empty_placement(*request.costs, replicas, 1);
  if (request.options.replica_balance) {
    result.placement.samples = deal_to_replicas(loads, replicas);
  } else {
    result.placement.samples = sequential_policy(request).samples;
    for (std::vector<int>& samples : result.placement.samples) {
      std::stable_sort(samples.begin(), samples.end(), [&](int a, int b) {
        return loads.normalised[at(a)] > loads.normalised[at(b)];
      });
    }
  }
  for (int replica = 0; replica < replicas; ++replica) {
    RuleChooser chooser(request, loads, evaluator, replica, result.placement);
    result.times.push_back(chooser.run(first + (budget - first) * (replica + 1) / replicas));
  }
  return result;
}

double worst_over(const Evaluated& candidate) {
  double over = 0;
  for (const ReplicaTimes& times : candidate.times) {
    over = std::max(over, times.over);
  }
  return over;
}

bool better(const Evaluated& a, const Evaluated& b, const StepEvaluator& evaluator) {
  if (!a.fits() || !b.fits()) {
    return a.fits() || (!b.fits() && worst_over(a) < worst_over(b));
  }
  return evaluator.step_ns(a.times) < evaluator.step_ns(b.times);
}

}  // namespace

Placement entrain_policy(const AssignRequest& request) {
  const BatchLoads loads = batch_loads(*request.plan, *request.costs);
  const BatchLoads start_loads =
      request.options.joint ? loads : encoder_only(loads, *request.costs);
  StepEvaluator evaluator(*request.plan, *request.costs);
  const std::int64_t bound =
      step_lower_bound(*request.plan, *request.costs, request.plan->schedule).count();
  const int budget = std::max(4, request.plan->limits.evaluations * 2 / 5);
  Evaluated best = construct(request, start_loads, budget, evaluator);
  for (const Policy rival : {lpt_2d_policy, sequential_policy}) {
    Evaluated candidate = evaluated(request, rival(request), evaluator);
    if (request.options.replica_balance && request.options.joint &&
        better(candidate, best, evaluator)) {
      best = std::move(candidate);
    }
  }
  if (request.options.search) {
    best = local_search(request, loads, bound, evaluator, std::move(best));
  }
  if (!best.fits()) {
    std::int64_t least_bytes = 0;
    for (const ReplicaTimes& times : best.times) {
      least_bytes = std::max(least_bytes, times.peak_bytes);
    }
    throw InvalidInput(
        fmt::format("no assignment found that keeps limits.bytes_per_lane = {}: the least that the "
                    "fullest lane needed was {} bytes",
                    request.plan->limits.bytes_per_lane,
                    least_bytes));
  }
  return std::move(best.placement);
}

}  // namespace entrain
