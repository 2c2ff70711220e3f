#include "entrain/core/assigner/construction.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
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

class Construction {
 public:
  Construction(const AssignRequest& request,
               const BatchLoads& loads,
               StepEvaluators& evaluators,
               const ConstructionOptions& options)
      : request_(request), loads_(loads), evaluators_(evaluators), options_(options) {}

  Evaluated run() {
    const int replicas = request_.plan->replicas;
    const Evaluated* start = options_.start;
    int budget = options_.budget;
    if (start != nullptr) {
      result_ = *start;
      sort_samples();
    } else {
      result_.placement = empty_placement(*request_.costs, replicas, 1);
      result_.times.resize(at(replicas));
      deal();
    }
    rules_.resize(at(replicas));
    backups_.assign(at(evaluators_.size()), result_.placement);
    int first = evaluators_.evaluations();
    const int extra = choose_rules((budget - first) / 2);
    first += extra;
    budget += extra;
    if (request_.options.replica_balance && replicas > 1) {
      level(first + (budget - first) * 3 / 4);
      refine(budget);
      level(budget);
    }
    tune(evaluators_.evaluations() + options_.tuning);
    return std::move(result_);
  }

 private:
  // Every replica's rule, for so many evaluations in all. Returns those beyond.
  int choose_rules(int budget) {
    std::vector<int> extra(at(evaluators_.size()), 0);
    evaluators_.for_each([&](int number) {
      const std::vector<int> replicas = evaluators_.replicas_of(number);
      const int count = static_cast<int>(replicas.size());
      const int share = budget * count / request_.plan->replicas;
      int first = evaluators_[number].evaluations();
      for (int i = 0; i < count; ++i) {
        const int more = choose_rule(replicas[at(i)], first + share * (i + 1) / count);
        extra[at(number)] += more;
        first += more;
      }
    });
    return std::accumulate(extra.begin(), extra.end(), 0);
  }

  // Until the replica's evaluator has made so many. Returns those beyond.
  int choose_rule(int replica, int evaluations) {
    Placement& backup = backup_of(replica);
    copy_replica(*request_.costs, result_.placement, replica, backup);
    const RuleResult chosen = choose_slot_rule(
        request_, loads_, evaluators_.of(replica), replica, evaluations, result_.placement);
    rules_[at(replica)] = chosen.rule;
    if (options_.start == nullptr || better(chosen.times, result_.times[at(replica)])) {
      result_.times[at(replica)] = chosen.times;
    } else {
      copy_replica(*request_.costs, backup, replica, result_.placement);
    }
    return chosen.extra;
  }

  Placement& backup_of(int replica) { return backups_[at(replica % evaluators_.size())]; }

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

  // A lane's work is no measure of a replica whose time is an oversized sample's path through all
  // stages: moves samples from the slowest replica to the fastest by simulated time, less and less
  // of it.
  void level(int budget) {
    double part = 0.5;
    while (part > 0.02 && evaluators_.evaluations() + 2 <= budget) {
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
        rule = rule_for(rule, static_cast<int>(result_.placement.samples[at(replica)].size()));
        place_by_rule(request_, loads_, replica, rule, result_.placement);
        result_.times[at(replica)] = evaluators_.of(replica).evaluate(result_.placement, replica);
      }
      const bool fitted = before.times[at(slow)].fits() && before.times[at(fast)].fits();
      const bool fits = result_.times[at(slow)].fits() && result_.times[at(fast)].fits();
      if ((fits || !fitted || !options_.keep_fitting) &&
          std::max(result_.times[at(slow)].score(), result_.times[at(fast)].score()) < slow_score) {
        return true;
      }
    }
    result_ = std::move(before);
    return false;
  }

  // Rules again where samples have changed.
  void refine(int budget) {
    const int share = (budget - evaluators_.evaluations()) / (2 * request_.plan->replicas);
    evaluators_.for_each([&](int number) {
      for (const int replica : evaluators_.replicas_of(number)) {
        refine_replica(replica, evaluators_[number].evaluations() + share);
      }
    });
  }

  void refine_replica(int replica, int evaluations) {
    Placement& backup = backup_of(replica);
    copy_replica(*request_.costs, result_.placement, replica, backup);
    const RuleResult chosen = choose_slot_rule(
        request_, loads_, evaluators_.of(replica), replica, evaluations, result_.placement, false);
    if (slower_last(chosen.times, result_.times[at(replica)])) {
      rules_[at(replica)] = chosen.rule;
      result_.times[at(replica)] = chosen.times;
    } else {
      copy_replica(*request_.costs, backup, replica, result_.placement);
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
    Placement& backup = backup_of(replica);
    copy_replica(*request_.costs, result_.placement, replica, backup);
    const ReplicaTimes& known = result_.times[at(replica)];
    place_by_rule(request_, loads_, replica, rule, result_.placement);
    const ReplicaTimes times = evaluators_.of(replica).evaluate(
        result_.placement,
        replica,
        known.fits() ? known.total_ns : std::numeric_limits<std::int64_t>::max());
    if (!times.done || !better(times, known)) {
      copy_replica(*request_.costs, backup, replica, result_.placement);
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
  std::vector<SlotRule> rules_;     // [replica]
  std::vector<Placement> backups_;  // [evaluator] what one of its replicas was
  Evaluated result_;
};

}  // namespace

Evaluated construct(const AssignRequest& request,
                    const BatchLoads& loads,
                    StepEvaluators& evaluators,
                    const ConstructionOptions& options) {
  return Construction(request, loads, evaluators, options).run();
}

}  // namespace entrain
