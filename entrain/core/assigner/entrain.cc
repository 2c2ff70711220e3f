// The policy `entrain`.
//
// 1. Samples to replicas, balanced on every module's heaviest lane.
// 2. For each replica a few dozen rules (number of slots, shape of their sizes, text-only slots at
//    the ends, segments spread), each constructed greedily and simulated; the fastest is kept.
// 3. `sequential` and `lpt-2d` compete with the result.
// 4. Local search from the best (search.h) with what is left of the budget of evaluations.
#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "entrain/core/assigner/evaluate.h"
#include "entrain/core/assigner/greedy.h"
#include "entrain/core/assigner/loads.h"
#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/assigner/policies.h"
#include "entrain/core/assigner/search.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// What one replica takes under the best rule so far.
struct RuleResult {
  SlotRule rule;
  ReplicaTimes times;
};

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
    best_.rule.num_slots = std::min(request_.plan->num_slots, num_samples_);
    best_.rule.shape = request_.options.shape ? SlotShape::kTriangle : SlotShape::kFlat;
    best_.times = times_of(best_.rule);
    if (request_.options.choose_slots) {
      choose_slots();
    }
    if (request_.options.shape) {
      choose_shape();
      choose_text_slots();
    }
    if (request_.options.defer && request_.options.split_segments) {
      SlotRule rule = best_.rule;
      rule.spread_segments = true;
      consider(rule);
    }
    if (!evaluator_.fits(best_.times)) {
      least_memory();
    }
    place_in_slots(loads_,
                   *request_.costs,
                   replica_,
                   best_.rule,
                   request_.plan->limits.max_deferral,
                   placement_);
    return best_.times;
  }

 private:
  ReplicaTimes times_of(const SlotRule& rule) {
    place_in_slots(
        loads_, *request_.costs, replica_, rule, request_.plan->limits.max_deferral, placement_);
    return evaluator_.evaluate(to_assignment(*request_.costs, placement_, replica_));
  }

  // Bytes over the limit first, then time.
  [[nodiscard]] bool better(const ReplicaTimes& a, const ReplicaTimes& b) const {
    const bool a_fits = evaluator_.fits(a);
    const bool b_fits = evaluator_.fits(b);
    if (!a_fits || !b_fits) {
      return a_fits || (!b_fits && a.peak_bytes < b.peak_bytes);
    }
    return a.total_ns < b.total_ns;
  }

  bool consider(const SlotRule& rule) {
    if (evaluator_.evaluations() >= budget_ || rule == best_.rule ||
        rule.text_front + rule.text_back >= rule.num_slots) {
      return false;
    }
    const ReplicaTimes times = times_of(rule);
    const bool wins = better(times, best_.times);
    if (wins) {
      best_ = {rule, times};
    }
    return wins;
  }

  // From as many slots as lanes up to one sample a slot.
  [[nodiscard]] std::vector<int> slot_counts() const {
    const int lanes = request_.plan->num_lanes();
    std::vector<int> counts;
    for (const int halves : {2, 3, 4, 6, 8, 12, 16, 24, 32}) {
      counts.push_back(std::min(num_samples_, std::max(1, lanes * halves / 2)));
    }
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    return counts;
  }

  void choose_slots() {
    SlotRule rule = best_.rule;
    for (const int count : slot_counts()) {
      rule.num_slots = count;
      if (rule.num_slots != request_.plan->num_slots) {
        consider(rule);
      }
    }
  }

  void choose_shape() {
    const int num_slots = best_.rule.num_slots;
    for (const SlotShape shape : kSlopedShapes) {
      SlotRule rule = best_.rule;
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
  }

  void choose_text_slots() {
    if (num_text_ == 0 || num_text_ == num_samples_) {
      return;
    }
    const int encoder_stages =
        request_.plan->num_lanes() - static_cast<int>(request_.plan->modules.back().stages.size());
    for (const int front : {1, encoder_stages / 2, encoder_stages}) {
      SlotRule rule = best_.rule;
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
    rule.num_slots = request_.options.choose_slots ? num_samples_ : best_.rule.num_slots;
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
  RuleResult best_;
};

Evaluated evaluated(const StepCosts& costs, Placement placement, StepEvaluator& evaluator) {
  Evaluated result{std::move(placement), {}};
  for (int replica = 0; replica < static_cast<int>(result.placement.samples.size()); ++replica) {
    result.times.push_back(evaluator.evaluate(to_assignment(costs, result.placement, replica)));
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
  result.placement.samples = deal_to_replicas(loads, replicas);
  for (int replica = 0; replica < replicas; ++replica) {
    RuleChooser chooser(request, loads, evaluator, replica, result.placement);
    result.times.push_back(chooser.run(first + (budget - first) * (replica + 1) / replicas));
  }
  return result;
}

bool all_fit(const Evaluated& candidate, const StepEvaluator& evaluator) {
  return std::all_of(candidate.times.begin(),
                     candidate.times.end(),
                     [&](const ReplicaTimes& times) { return evaluator.fits(times); });
}

std::int64_t peak_bytes(const Evaluated& candidate) {
  std::int64_t peak = 0;
  for (const ReplicaTimes& times : candidate.times) {
    peak = std::max(peak, times.peak_bytes);
  }
  return peak;
}

}  // namespace

Placement entrain_policy(const AssignRequest& request) {
  const BatchLoads loads = batch_loads(*request.plan, *request.costs);
  StepEvaluator evaluator(*request.plan, *request.costs);
  const std::int64_t bound =
      step_lower_bound(*request.plan, *request.costs, request.plan->schedule).count();
  std::vector<Evaluated> candidates;
  candidates.push_back(evaluated(*request.costs, lpt_2d_policy(request), evaluator));
  candidates.push_back(evaluated(*request.costs, sequential_policy(request), evaluator));
  const int budget = std::max(evaluator.evaluations(), request.plan->limits.evaluations * 2 / 5);
  candidates.push_back(construct(request, loads, budget, evaluator));
  const Evaluated* best = nullptr;
  std::int64_t least_bytes = peak_bytes(candidates.front());
  for (const Evaluated& candidate : candidates) {
    least_bytes = std::min(least_bytes, peak_bytes(candidate));
    if (all_fit(candidate, evaluator) &&
        (best == nullptr || evaluator.step_ns(candidate.times) < evaluator.step_ns(best->times))) {
      best = &candidate;
    }
  }
  if (best == nullptr) {
    throw InvalidInput(
        fmt::format("no assignment found that keeps limits.bytes_per_lane = {}: the least that the "
                    "fullest lane needed was {} bytes",
                    request.plan->limits.bytes_per_lane,
                    least_bytes));
  }
  return local_search(request, loads, bound, evaluator, *best).placement;
}

}  // namespace entrain
