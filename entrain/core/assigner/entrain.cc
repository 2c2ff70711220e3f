// The policy `entrain`.
//
// 1. Samples to replicas, balanced on every module's heaviest lane.
// 2. For each replica a few dozen rules (number of slots, shape of their sizes, text-only slots at
//    the ends, segments spread), each constructed greedily and simulated; the fastest is kept.
//    Where the schedule is found rather than fixed, its own rule is chosen along the way.
//    Work then moves from slow replicas to fast ones by simulated time, and rules are tried again.
// 3. `sequential` and `lpt-2d` compete with the result; where it breaks a memory limit, so does a
//    construction that keeps them, and a search from the best rival with one that mends the first.
// 4. Heavy samples are cut into chunks where that is allowed and pays.
// 5. Local search from the best (search.h) with what is left of the budget of evaluations.
// 6. Where nothing fits: all of it with few evaluations, then one sample a slot in drawn order.
#include "entrain/core/assigner/entrain.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "entrain/core/assigner/balance_objective.h"
#include "entrain/core/assigner/evaluate.h"
#include "entrain/core/assigner/greedy.h"
#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/assigner/search.h"
#include "entrain/core/assigner/slot_rules.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/baselines/loads.h"
#include "entrain/core/baselines/policies.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/over_limit.h"

namespace entrain {
namespace {

bool slower_last(const ReplicaTimes& a, const ReplicaTimes& b) {
  return a.score() < b.score();
}

Evaluated evaluated(const AssignRequest& request, Placement placement, StepEvaluator& evaluator) {
  Evaluated result{std::move(placement), {}};
  for (int replica = 0; replica < request.plan->replicas; ++replica) {
    result.times.push_back(evaluator.evaluate(result.placement, replica));
  }
  return result;
}

// Loads of encoders only, except for samples without any: for the ablation of the joint start.
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

int slowest_of(const std::vector<ReplicaTimes>& times) {
  return static_cast<int>(std::max_element(times.begin(), times.end(), slower_last) -
                          times.begin());
}

// Construction: replicas dealt, slots by rule, work moved from slow replicas to fast ones.
class Construction {
 public:
  // `keep_fitting`: no replica that keeps the limits is led over them to make a slower one faster.
  // Without it the way to a good dealing is open, and its end may need mending.
  Construction(const AssignRequest& request,
               const BatchLoads& loads,
               StepEvaluator& evaluator,
               bool keep_fitting)
      : request_(request), loads_(loads), evaluator_(evaluator), keep_fitting_(keep_fitting) {
    result_.placement = empty_placement(*request.costs, request.plan->replicas, 1);
  }

  Evaluated run(int budget) {
    const int replicas = request_.plan->replicas;
    deal();
    const int first = evaluator_.evaluations();
    for (int replica = 0; replica < replicas; ++replica) {
      const RuleResult chosen =
          choose_slot_rule(request_,
                           loads_,
                           evaluator_,
                           replica,
                           first + (budget - first) * (replica + 1) / (2 * replicas),
                           result_.placement);
      rules_.push_back(chosen.rule);
      result_.times.push_back(chosen.times);
    }
    if (request_.options.replica_balance && replicas > 1) {
      level(first + (budget - first) * 3 / 4);
      refine(budget);
      level(budget);
    }
    return std::move(result_);
  }

 private:
  void deal() {
    const int replicas = request_.plan->replicas;
    if (request_.options.replica_balance) {
      result_.placement.samples = deal_to_replicas(loads_, replicas);
      return;
    }
    result_.placement.samples = sequential_policy(request_).samples;
    for (std::vector<int>& samples : result_.placement.samples) {
      std::stable_sort(samples.begin(), samples.end(), [&](int a, int b) { return falling(a, b); });
    }
  }

  [[nodiscard]] bool falling(int a, int b) const {
    return loads_.normalised[at(a)] > loads_.normalised[at(b)] ||
           (loads_.normalised[at(a)] == loads_.normalised[at(b)] && a < b);
  }

  // A lane's work is no measure of a replica whose time is an oversized sample's path through all
  // stages: moves samples from the slowest replica to the fastest by simulated time, less and less
  // of it.
  void level(int budget) {
    double part = 0.5;
    while (part > 0.02 && evaluator_.evaluations() + 2 <= budget) {
      const int slow = slowest_of(result_.times);
      const auto fastest =
          std::min_element(result_.times.begin(), result_.times.end(), slower_last);
      const int fast = static_cast<int>(fastest - result_.times.begin());
      part = slow != fast && shift(slow, fast, part) ? std::min(0.5, part * 1.5) : part / 2;
    }
  }

  // Whether the slower of both got faster.
  bool shift(int slow, int fast, double part) {
    Evaluated before = result_;
    std::vector<int>& from = result_.placement.samples[at(slow)];
    std::vector<int>& to = result_.placement.samples[at(fast)];
    const double slow_score = result_.times[at(slow)].score();
    const double excess = 1.0 - result_.times[at(fast)].score() / slow_score;
    double wanted = 0;
    for (const int sample : from) {
      wanted += part * excess * static_cast<double>(loads_.normalised[at(sample)]);
    }
    std::vector<int> stay;
    for (const int sample : from) {
      const auto size = static_cast<double>(loads_.normalised[at(sample)]);
      if (size <= wanted && stay.size() + 1 < from.size()) {
        wanted -= size;
        to.push_back(sample);
      } else {
        stay.push_back(sample);
      }
    }
    const bool moved = stay.size() < from.size() && !stay.empty();
    from = std::move(stay);
    if (moved) {
      std::sort(to.begin(), to.end(), [&](int a, int b) { return falling(a, b); });
      for (const int replica : {slow, fast}) {
        SlotRule& rule = rules_[at(replica)];
        rule.num_slots = std::min(rule.num_slots,
                                  static_cast<int>(result_.placement.samples[at(replica)].size()));
        place_by_rule(request_, loads_, replica, rule, result_.placement);
        result_.times[at(replica)] = evaluator_.evaluate(result_.placement, replica);
      }
      const bool fitted = before.times[at(slow)].fits() && before.times[at(fast)].fits();
      const bool fits = result_.times[at(slow)].fits() && result_.times[at(fast)].fits();
      if ((fits || !fitted || !keep_fitting_) &&
          std::max(result_.times[at(slow)].score(), result_.times[at(fast)].score()) < slow_score) {
        return true;
      }
    }
    result_ = std::move(before);
    return false;
  }

  // Rules again where samples have changed: the slowest replicas first.
  void refine(int budget) {
    std::vector<int> order(rules_.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = static_cast<int>(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return slower_last(result_.times[at(b)], result_.times[at(a)]);
    });
    const int first = evaluator_.evaluations();
    const int share = (budget - first) / (2 * static_cast<int>(order.size()));
    for (const int replica : order) {
      const Evaluated before = result_;
      const RuleResult chosen = choose_slot_rule(request_,
                                                 loads_,
                                                 evaluator_,
                                                 replica,
                                                 evaluator_.evaluations() + share,
                                                 result_.placement);
      if (slower_last(chosen.times, result_.times[at(replica)])) {
        rules_[at(replica)] = chosen.rule;
        result_.times[at(replica)] = chosen.times;
      } else {
        result_ = before;
      }
    }
  }

  const AssignRequest& request_;
  const BatchLoads& loads_;
  StepEvaluator& evaluator_;
  bool keep_fitting_;
  std::vector<SlotRule> rules_;  // [replica]
  Evaluated result_;
};

// The best of a few cuts of one sample, at several places; false when none is faster.
bool cut_sample(const AssignRequest& request,
                StepEvaluator& evaluator,
                int replica,
                int sample,
                Evaluated& best) {
  const int slot = best.placement.llm_slot[at(sample)];
  const int max_deferral = request.plan->limits.max_deferral;
  const ReplicaTimes before = best.times[at(replica)];
  const Placement base = best.placement;
  for (const int count : {2, 3, 4, 6, 8}) {
    for (const int back : {0, count / 2, count - 1}) {
      if (max_deferral >= 0 && count - 1 > max_deferral) {
        continue;  // the segments are in the first chunk's slot
      }
      Placement tried = base;
      int& num_slots = tried.num_slots[at(replica)];
      const int first = std::max(0, slot - back);
      num_slots = std::max(num_slots, first + count);
      place_sample(*request.costs, sample, first, tried);
      tried.llm_slot[at(sample)] = first + count - 1;
      tried.chunks[at(sample)] = equal_chunks(*request.costs, sample, first, count);
      const ReplicaTimes times = evaluator.evaluate(tried, replica);
      const bool allowed = times.fits() || !before.fits();
      if (times.done && allowed && slower_last(times, best.times[at(replica)])) {
        best.placement = std::move(tried);
        best.times[at(replica)] = times;
      }
    }
  }
  return slower_last(best.times[at(replica)], before);
}

// Cuts the heaviest sample of the slowest replica where its step gets faster, again and again, with
// a third of what is left of the budget.
void cut_heavy_samples(const AssignRequest& request,
                       const BatchLoads& loads,
                       StepEvaluator& evaluator,
                       Evaluated& best) {
  constexpr int kMostCuts = 16;
  const int spent = evaluator.evaluations();
  const int budget = spent + (request.plan->limits.evaluations - spent) / 3;
  for (int i = 0; i < kMostCuts && evaluator.evaluations() < budget; ++i) {
    const int replica = slowest_of(best.times);
    int heaviest = -1;
    for (const int sample : best.placement.samples[at(replica)]) {
      if (best.placement.chunks[at(sample)].empty() &&
          request.costs->work[at(sample)].llm_tokens >= 8 &&
          (heaviest < 0 || loads.llm[at(sample)] > loads.llm[at(heaviest)])) {
        heaviest = sample;
      }
    }
    if (heaviest < 0 || !cut_sample(request, evaluator, replica, heaviest, best)) {
      break;
    }
  }
}

// Two fifths of all; with many replicas what a choice among rules needs, unless nothing is allowed.
int construction_budget(const AssignRequest& request) {
  constexpr int kEvaluationsPerReplica = 24;
  const int evaluations = request.plan->limits.evaluations;
  const int least = evaluations > 0 ? kEvaluationsPerReplica * request.plan->replicas : 0;
  return std::max({4, evaluations * 2 / 5, least});
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

double slowest_score(const Evaluated& candidate) {
  return candidate.times[at(slowest_of(candidate.times))].score();
}

// The better of the construction and its rivals: `lpt-2d`, `sequential` and, where the construction
// breaks a limit, one that does not leave them. A construction that is faster and over a limit by
// little is not given up at once: a quarter of what is left of the budget each goes to a search
// from it and from the best rival.
Evaluated against_rivals(const AssignRequest& request,
                         const BatchLoads& start_loads,
                         const BatchLoads& loads,
                         std::int64_t bound_ns,
                         StepEvaluator& evaluator,
                         Evaluated constructed) {
  Evaluated rival = evaluated(request, lpt_2d_policy(request), evaluator);
  const auto compete = [&](Evaluated other) {
    if (better(other, rival, evaluator)) {
      rival = std::move(other);
    }
  };
  compete(evaluated(request, sequential_policy(request), evaluator));
  if (!constructed.fits()) {
    const int budget = evaluator.evaluations() + construction_budget(request) / 2;
    compete(Construction(request, start_loads, evaluator, true).run(budget));
  }
  if (!better(rival, constructed, evaluator)) {
    return constructed;
  }
  if (!request.options.search || slowest_score(constructed) >= slowest_score(rival)) {
    return rival;
  }
  const int share = (request.plan->limits.evaluations - evaluator.evaluations()) / 4;
  const auto searched = [&](Evaluated start) {
    const int budget = evaluator.evaluations() + share;
    return local_search(request, loads, bound_ns, evaluator, budget, std::move(start));
  };
  Evaluated mended = searched(std::move(constructed));
  rival = searched(std::move(rival));
  return better(mended, rival, evaluator) ? mended : rival;
}

// Says where the best candidate misses the limits the most.
[[noreturn]] void throw_nothing_fits(const AssignRequest& request, const Evaluated& nearest) {
  const StepAssignment assignment = to_assignment(*request.costs, nearest.placement);
  const Program program =
      build_program(*request.plan, assignment, *request.costs, request.plan->schedule);
  const auto excess = worst_excess(program, *request.costs, request.plan->limits);
  throw OverLimits(
      fmt::format("no assignment found that keeps the plan's memory limits; the nearest: {}",
                  excess ? to_string(program, *excess) : "over the limit only in the search"),
      excess.value_or(MemoryExcess{}));
}

std::vector<ReplicaTimes> times_by_best_rules(const Placement& placement,
                                              StepEvaluator& evaluator) {
  std::vector<ReplicaTimes> times;
  for (int replica = 0; replica < static_cast<int>(placement.samples.size()); ++replica) {
    times.push_back(evaluator.choose_rule(placement, replica));
  }
  return times;
}

// Under a found order the search timed everything by one rule a replica. The program takes the best
// rule of all: compares with the rivals once more by what the program will take.
void settle(const AssignRequest& request, StepEvaluator& evaluator, Evaluated& best) {
  best.times = times_by_best_rules(best.placement, evaluator);
  for (const Policy rival : {lpt_2d_policy, sequential_policy}) {
    Evaluated candidate{rival(request), {}};
    candidate.times = times_by_best_rules(candidate.placement, evaluator);
    if (better(candidate, best, evaluator)) {
      best = std::move(candidate);
    }
  }
}

// Steps 1 to 5: the best found; it may be over the limits.
Evaluated best_found(const AssignRequest& request) {
  const BatchLoads loads = batch_loads(*request.plan, *request.costs);
  const BatchLoads start_loads =
      request.options.joint ? loads : encoder_only(loads, *request.costs);
  StepEvaluator evaluator(*request.plan, *request.costs);
  const std::int64_t bound =
      step_lower_bound(*request.plan, *request.costs, request.plan->schedule).count();
  const int budget = construction_budget(request);
  Evaluated best = Construction(request, start_loads, evaluator, false).run(budget);
  if (request.options.replica_balance && request.options.joint) {
    best = against_rivals(request, start_loads, loads, bound, evaluator, std::move(best));
  }
  if (request.options.chunks && request.plan->limits.chunks) {
    cut_heavy_samples(request, start_loads, evaluator, best);
  }
  if (request.options.search) {
    best = local_search(
        request, loads, bound, evaluator, request.plan->limits.evaluations, std::move(best));
  }
  if (evaluator.has_rules() && request.plan->limits.evaluations > 0) {
    settle(request, evaluator, best);
  }
  return best;
}

// More evaluations lead elsewhere, and not always to what fits: whatever kFewEvaluations find, and
// the leanest slots, count with every number.
void fall_back(const AssignRequest& request, Evaluated& best) {
  Plan few = *request.plan;
  few.limits.evaluations = kFewEvaluations;
  AssignRequest other = request;
  other.plan = &few;
  StepEvaluator evaluator(*request.plan, *request.costs);
  if (request.plan->limits.evaluations != kFewEvaluations) {
    Evaluated found = best_found(other);
    if (better(found, best, evaluator)) {
      best = std::move(found);
    }
  }
  if (!best.fits() && request.options.choose_slots) {
    Evaluated lean{one_sample_a_slot(request), {}};
    lean.times = times_by_best_rules(lean.placement, evaluator);
    if (better(lean, best, evaluator)) {
      best = std::move(lean);
    }
  }
}

}  // namespace

Placement entrain_policy(const AssignRequest& request) {
  if (request.objective == Objective::kBalance) {
    return balance_objective(request);
  }
  Evaluated best = best_found(request);
  if (!best.fits()) {
    fall_back(request, best);
  }
  if (!best.fits()) {
    throw_nothing_fits(request, best);
  }
  return std::move(best.placement);
}

}  // namespace entrain
