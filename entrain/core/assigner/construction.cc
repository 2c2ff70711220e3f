#include "entrain/core/assigner/construction.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "entrain/core/assigner/greedy.h"
#include "entrain/core/assigner/slot_rules.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/digest.h"
#include "entrain/core/base/random.h"
#include "entrain/core/baselines/policies.h"

namespace entrain {
namespace {

// Moves of work between replicas and others' slots can make a step so much shorter than its first
// slots take; the mean of all replicas says more than one of them.
constexpr double kLastOver = 1.1;
constexpr double kMeanOver = 1.02;

class Construction {
 public:
  Construction(const AssignRequest& request,
               const BatchLoads& loads,
               StepEvaluators& evaluators,
               const ConstructionOptions& options)
      : request_(request), loads_(loads), evaluators_(evaluators), options_(options) {}

  std::vector<Evaluated> run() {
    const int replicas = request_.plan->replicas;
    const Evaluated* start = options_.start;
    const int budget = options_.budget;
    if (start != nullptr) {
      result_ = *start;
      sort_samples();
    } else {
      result_.placement = empty_placement(*request_.costs, replicas, 1);
      result_.times.resize(at(replicas));
      deal();
    }
    rules_.resize(at(replicas));
    backup_ = result_.placement;
    const int first = evaluators_.evaluations();
    const int extra = choose_rules((budget - first) / 2);
    give_up_by_mean();
    std::optional<Evaluated> chosen;
    if (evaluators_[0].has_limits()) {
      chosen = result_;
    }
    const std::vector<SlotRule> rules = rules_;
    const int rest = budget + extra - evaluators_.evaluations();
    keep_fitting_ = start != nullptr;
    finish(rest);
    std::vector<Evaluated> made;
    const bool again = !result_.fits() && left_limits_;
    made.push_back(std::move(result_));
    if (again) {
      keep_fitting_ = true;
      result_ = std::move(*chosen);
      rules_ = rules;
      finish(rest);
      made.push_back(std::move(result_));
    }
    return made;
  }

 private:
  // Work moved between replicas for so many evaluations, then tuning.
  void finish(int budget) {
    const int first = evaluators_.evaluations();
    if (request_.options.replica_balance && request_.plan->replicas > 1) {
      level(first + budget / 2);
      refine(first + budget);
      level(first + budget);
    }
    tune(evaluators_.evaluations() + options_.tuning);
  }

  // Every replica's rule, for so many evaluations in all. Returns those beyond. The last replica
  // chooses among all rules, with two shares, and the others begin with its rule: as samples are
  // dealt, its heaviest one is lighter than theirs, and its rule the least like an exception.
  int choose_rules(int budget) {
    const int replicas = request_.plan->replicas;
    const int last = replicas - 1;
    const int share = budget / replicas;
    std::vector<int> extra(at(evaluators_.size()), 0);
    extra[at(last % evaluators_.size())] = choose_rule(
        last, evaluators_.of(last).evaluations() + (last > 0 ? 2 * share : share), nullptr);
    if (result_.times[at(last)].fits()) {
      give_up_from(kLastOver, static_cast<double>(result_.times[at(last)].total_ns));
    }
    evaluators_.for_each([&](int number) {
      int first = evaluators_[number].evaluations();
      int count = 0;
      for (const int replica : evaluators_.replicas_of(number)) {
        if (replica != last) {
          const int end = first + ++count * share;
          const int more = choose_rule(replica, end, &rules_[at(last)]);
          extra[at(number)] += more;
          first += more;
        }
      }
    });
    return std::accumulate(extra.begin(), extra.end(), 0);
  }

  // A single replica takes much less once its rule is refined.
  void give_up_by_mean() const {
    double sum = 0;
    for (const ReplicaTimes& times : result_.times) {
      if (!times.fits()) {
        return;
      }
      sum += static_cast<double>(times.total_ns);
    }
    give_up_from(kMeanOver, sum / request_.plan->replicas);
  }

  void give_up_from(double over, double ns) const {
    if (request_.plan->replicas > 1 && ns > over * static_cast<double>(options_.give_up_ns)) {
      throw GaveUp(static_cast<std::int64_t>(ns));
    }
  }

  // Until the replica's evaluator has made so many; `start` as for choose_slot_rule(). Returns
  // those beyond.
  int choose_rule(int replica, int evaluations, const SlotRule* start) {
    back_up(replica);
    const RuleResult chosen = choose_slot_rule(request_,
                                               loads_,
                                               evaluators_.of(replica),
                                               replica,
                                               {.budget = evaluations, .start = start},
                                               result_.placement);
    rules_[at(replica)] = chosen.rule;
    if (options_.start == nullptr || better(chosen.times, result_.times[at(replica)])) {
      result_.times[at(replica)] = chosen.times;
    } else {
      restore(replica);
    }
    return chosen.extra;
  }

  void deal() {
    const int replicas = request_.plan->replicas;
    if (options_.dealt != nullptr) {
      result_.placement.samples = *options_.dealt;
      sort_samples();
      return;
    }
    if (request_.options.replica_balance) {
      result_.placement.samples = deal_to_replicas(loads_, replicas);
      return;
    }
    result_.placement.samples = sequential_policy(request_).samples;
    sort_samples();
  }

  void sort_samples() {
    for (std::vector<int>& samples : result_.placement.samples) {
      std::stable_sort(samples.begin(), samples.end(), [&](int a, int b) { return falling(a, b); });
    }
  }

  [[nodiscard]] bool falling(int a, int b) const {
    return loads_.normalised[at(a)] > loads_.normalised[at(b)] ||
           (loads_.normalised[at(a)] == loads_.normalised[at(b)] && a < b);
  }

  void level(int budget) {
    level_replicas(
        result_.times,
        [&](int slow, int fast, double share) { return shift(slow, fast, share); },
        [&] { return evaluators_.evaluations() + 2 <= budget; });
  }

  void back_up(int replica) { copy_replica(*request_.costs, result_.placement, replica, backup_); }
  void restore(int replica) { copy_replica(*request_.costs, backup_, replica, result_.placement); }

  // Whether the slower of both got faster. What leaves the limits is tried again with as many slots
  // as keep their size.
  bool shift(int slow, int fast, double share) {
    const int both[] = {slow, fast};
    const std::vector<ReplicaTimes> before = result_.times;
    const SlotRule rules[] = {rules_[at(slow)], rules_[at(fast)]};
    back_up(slow);
    back_up(fast);
    if (move_samples(slow, fast, share)) {
      place_again(slow, 1);
      place_again(fast, 1);
      if (keep_shift(before, slow, fast)) {
        return true;
      }
      bool fit = true;
      for (const int replica : both) {
        if (!result_.times[at(replica)].fits() && request_.options.choose_slots) {
          const auto work = [&](const Placement& of) {
            return std::max(1.0, work_of(loads_, of.samples[at(replica)]));
          };
          place_again(replica, work(result_.placement) / work(backup_));
          fit = false;
        }
      }
      if (!fit && keep_shift(before, slow, fast)) {
        return true;
      }
    }
    for (int i = 0; i < 2; ++i) {
      restore(both[i]);
      rules_[at(both[i])] = rules[i];
    }
    result_.times = before;
    return false;
  }

  bool keep_shift(const std::vector<ReplicaTimes>& before, int slow, int fast) {
    const auto fit = [&](const std::vector<ReplicaTimes>& times) {
      return times[at(slow)].fits() && times[at(fast)].fits();
    };
    const bool leaves = fit(before) && !fit(result_.times);
    if ((leaves && keep_fitting_) ||
        std::max(result_.times[at(slow)].score(), result_.times[at(fast)].score()) >=
            before[at(slow)].score()) {
      return false;
    }
    left_limits_ = left_limits_ || leaves;
    return true;
  }

  // By its rule, with so many times the slots.
  void place_again(int replica, double slots) {
    SlotRule& rule = rules_[at(replica)];
    const int most = static_cast<int>(result_.placement.samples[at(replica)].size());
    rule.num_slots = static_cast<int>(
        std::clamp(std::round(rule.num_slots * slots), 1.0, static_cast<double>(most)));
    rule = rule_for(rule, most);
    place_by_rule(request_, loads_, replica, rule, result_.placement);
    result_.times[at(replica)] = evaluators_.of(replica).evaluate(result_.placement, replica);
  }

  // Whether any moved.
  bool move_samples(int slow, int fast, double share) {
    std::vector<int>& from = result_.placement.samples[at(slow)];
    std::vector<int>& to = result_.placement.samples[at(fast)];
    double wanted = share * work_of(loads_, from);
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
    std::sort(to.begin(), to.end(), [&](int a, int b) { return falling(a, b); });
    return moved;
  }

  // Rules near each replica's own where samples have changed.
  void refine(int budget) {
    const int share = (budget - evaluators_.evaluations()) / (2 * request_.plan->replicas);
    evaluators_.for_each([&](int number) {
      for (const int replica : evaluators_.replicas_of(number)) {
        refine_replica(replica, evaluators_[number].evaluations() + share);
      }
    });
  }

  void refine_replica(int replica, int evaluations) {
    back_up(replica);
    const RuleResult chosen =
        choose_slot_rule(request_,
                         loads_,
                         evaluators_.of(replica),
                         replica,
                         {.budget = evaluations, .beyond = false, .start = &rules_[at(replica)]},
                         result_.placement);
    if (slower_last(chosen.times, result_.times[at(replica)])) {
      rules_[at(replica)] = chosen.rule;
      result_.times[at(replica)] = chosen.times;
    } else {
      restore(replica);
    }
  }

  // Small changes of the slowest replica's rule; where they fail, its work is shifted.
  void tune(int budget) {
    constexpr int kTries = 8;
    constexpr int kDraws = 4;  // for each evaluation, at most
    Rng rng(request_.seed, hash_of("assigner/tune"));
    int failed = 0;
    for (int draws = kDraws * (budget - evaluators_.evaluations());
         draws > 0 && evaluators_.evaluations() < budget;
         --draws) {
      const int slow = slowest_of(result_.times);
      if (retune(slow, rng)) {
        failed = 0;
      } else if (++failed % kTries == 0) {
        level(std::min(budget, evaluators_.evaluations() + kTries));
      }
    }
  }

  // Whether a neighbour of the replica's rule is better.
  bool retune(int replica, Rng& rng) {
    const std::vector<int>& samples = result_.placement.samples[at(replica)];
    const bool has_text = std::any_of(samples.begin(), samples.end(), [&](int sample) {
      return loads_.text_only[at(sample)] != 0;
    });
    const SlotRule rule = neighbour_of(
        rules_[at(replica)], request_.options, static_cast<int>(samples.size()), has_text, rng);
    if (rule == rules_[at(replica)]) {
      return false;
    }
    back_up(replica);
    const ReplicaTimes& known = result_.times[at(replica)];
    place_by_rule(request_, loads_, replica, rule, result_.placement);
    const ReplicaTimes times = evaluators_.of(replica).evaluate(
        result_.placement,
        replica,
        known.fits() ? known.total_ns : std::numeric_limits<std::int64_t>::max());
    if (!times.done || !better(times, known)) {
      restore(replica);
      return false;
    }
    rules_[at(replica)] = rule;
    result_.times[at(replica)] = times;
    return true;
  }

  const AssignRequest& request_;
  const BatchLoads& loads_;
  StepEvaluators& evaluators_;
  const ConstructionOptions& options_;
  std::vector<SlotRule> rules_;  // [replica]
  Placement backup_;             // of replicas that may become what they were
  Evaluated result_;
  bool keep_fitting_ = false;  // no replica is led over the limits to make a slower one faster
  bool left_limits_ = false;   // one was
};

}  // namespace

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

std::vector<Evaluated> construct(const AssignRequest& request,
                                 const BatchLoads& loads,
                                 StepEvaluators& evaluators,
                                 const ConstructionOptions& options) {
  return Construction(request, loads, evaluators, options).run();
}

}  // namespace entrain
