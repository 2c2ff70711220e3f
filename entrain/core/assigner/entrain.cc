// The policy `entrain`: a fixed sequence of parts, of which the budget of evaluations cuts the end
// off. Each part competes with the best before, so that a larger budget is never worse.
//
// 1. Construction (construction.h): replicas dealt; slots by the best of a few dozen rules, the
//    last replica's, with which the others begin; work moved from slow replicas to fast ones.
//    `lpt-2d`, `sequential` and `dflop` compete; `dflop` with a twentieth of its exchanges, and
//    with all of them once kFewEvaluations are spent.
// 2. Search (search.h) from the best, in growing pieces; with random moves first where the last
//    piece found nothing. Where a start over a memory limit is faster, every other piece mends it;
//    where nothing keeps the limits, a first piece does whatever the budget.
// 3. Where the budget is ample, construction again with more of it and with tuned rules; with a
//    third of that, one whose long samples are together in few replicas; where a start over a
//    memory limit is faster also one that begins with the best of the others. Where the first
//    construction leaves too little of the default budget for it, search comes before. All of them
//    are compared with what was searched already. Where the schedule fixes orders, in which a
//    search wins the most, the fastest of those that lost is searched in a piece, too; not where
//    samples may be cut, since it has no cuts and what it lost to has.
// 4. Heavy samples are cut into chunks where that is allowed and pays (after each construction).
// 5. Search as in 2.
// 6. Where reductions overlap compute: the simulator compares the best with even slots.
// 7. Where nothing fits: one sample a slot, large ones far from each other.
//
// A budget is of simulations of StepEvaluator::kUsualOperations. Parts have their nominal sizes,
// but once more was simulated than those come to, the budget is as far spent as that.
//
// Where the schedule is found rather than fixed, candidates are compared, and pieces begin, by the
// fastest of its rules.
#include "entrain/core/assigner/entrain.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "entrain/core/assigner/balance_objective.h"
#include "entrain/core/assigner/chunk_cuts.h"
#include "entrain/core/assigner/construction.h"
#include "entrain/core/assigner/evaluators.h"
#include "entrain/core/assigner/even_slots.h"
#include "entrain/core/assigner/greedy.h"
#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/assigner/search.h"
#include "entrain/core/assigner/slot_bytes.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/baselines/loads.h"
#include "entrain/core/baselines/policies.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/over_limit.h"

namespace entrain {
namespace {

// Of evaluations per replica: what the constructions may spend, and where pieces of the search end.
constexpr int kFirstConstruction = 24;
constexpr int kFirstSearch[] = {30, 36, 48, 60};
constexpr int kLateConstruction = 250;
constexpr int kSecondConstruction = 100;
constexpr int kTogetherPart = 35;  // percent of that, for long samples together
constexpr int kTuning = 16;
constexpr int kRivalSearch = 30;
constexpr int kMending = 32;
constexpr int kFirstCuts = 12;
constexpr int kSecondCuts = 32;
constexpr std::int64_t kFewExchanges = kDflopExchanges / 20;
constexpr int kKicks = 4;         // random moves of a search that is stuck
constexpr double kGrowth = 1.12;  // of the pieces after: twenty in a decade

// The parts in order. A part that a budget does not reach is left out, and so are all after it;
// pieces of the search may end early.
class Sequence {
 public:
  explicit Sequence(const AssignRequest& request)
      : request_(request),
        loads_(batch_loads(*request.plan, *request.costs)),
        evaluators_(*request.plan, *request.costs, request.threads),
        evaluator_(evaluators_[0]),
        budget_(request.plan->limits.evaluations) {
    if (budget_ > 0) {
      budget_ = std::max(budget_, kFewEvaluations);
    }
    if (evaluator_.has_limits()) {
      loads_.lane_bytes = activations_of(*request.plan, *request.costs);
    }
    if (!request.options.joint) {
      encoder_loads_ = encoder_only(loads_, *request.costs);
    }
  }

  Evaluated run() {
    construct_first();
    mend();
    for (const int end : kFirstSearch) {
      offer_rest_of_dflop();
      search_to(end);
    }
    offer_rest_of_dflop();
    const int wanted = kSecondConstruction * request_.plan->replicas;
    const int tuning = kTuning * request_.plan->replicas;
    if (spent_ + wanted + tuning > kLateConstruction * request_.plan->replicas) {
      search_on(kLateConstruction);
    }
    if (spent_ + wanted + tuning <= budget_ && !is_optimal() && construct_second(wanted, tuning)) {
      search_on(std::numeric_limits<int>::max());
    }
    judge_overlap();
    return std::move(best_);
  }

 private:
  void construct_first() {
    const int budget = budget_ > 0 ? kFirstConstruction * request_.plan->replicas : 4;
    std::vector<Evaluated> made = construct(request_,
                                            start_loads(),
                                            evaluators_,
                                            {.budget = budget, .give_up_ns = request_.give_up_ns});
    best_ = timed(std::move(made.front()));
    if (made.size() > 1) {
      offer(std::move(made.back()));
    }
    if (has_rivals()) {
      offer({lpt_2d_bins(request_, loads_, request_.plan->num_slots), {}});
      offer({sequential_policy(request_), {}});
      offer({dflop_bins(request_, loads_, request_.plan->num_slots, kFewExchanges), {}});
    }
    pay(budget);
    if (budget_ > 0) {
      cut(kFirstCuts);
    }
  }

  // Where nothing fits yet: whatever was spent, since large replicas can use up the budget before.
  void mend() {
    if (!best_.fits() && budget_ > 0 && request_.options.search) {
      const int piece = kMending * request_.plan->replicas;
      offer(search_in_groups(request_, loads_, 0, evaluators_, piece, 0, resumed(best_)));
      pay(piece);
    }
  }

  // By the bound, which takes as long as many an evaluation: known only once a piece of the search
  // has found nothing, as it does wherever nothing is left to find, and not where samples have so
  // many segments that it takes longer than it may save.
  bool is_optimal() {
    constexpr int kMostSegments = 16;  // of a sample, in the mean
    if (stuck_ && !bound_ns_) {
      const StepCosts& costs = *request_.costs;
      std::int64_t segments = 0;
      for (int module = 0; module < costs.llm_module(); ++module) {
        segments += costs.modules[at(module)].first_unit.back();
      }
      bound_ns_ = segments > std::int64_t{kMostSegments} * costs.num_samples
                      ? 0
                      : step_lower_bound(*request_.plan, costs, request_.plan->schedule).count();
    }
    return best_.fits() && evaluator_.step_ns(best_.times) <= bound_ns_.value_or(0);
  }

  [[nodiscard]] bool has_rivals() const {
    const EntrainOptions& options = request_.options;
    return options.rivals && options.replica_balance && options.joint;
  }

  // Its exchanges can take longer than all else that few evaluations allow, which want an
  // assignment in some milliseconds: all of them only behind what those come to. A replica of one
  // lane takes the sum of its work whatever its slots: the fewer they are, the more even replicas
  // can be. So a single one competes as well, and where limits bind as many as the best has.
  void offer_rest_of_dflop() {
    if (has_rivals() && !all_exchanges_ && budget_ > kFewEvaluations && spent_ >= kFewEvaluations) {
      all_exchanges_ = true;
      const int given = request_.plan->num_slots;
      if (request_.plan->lanes.size() == 1) {
        offer({dflop_bins(request_, loads_, 1, kDflopExchanges), {}});
        if (over_) {
          const std::vector<int>& best = best_.placement.num_slots;
          const int most = *std::max_element(best.begin(), best.end());
          offer({dflop_bins(request_, loads_, most, kDflopExchanges), {}});
        }
      }
      offer({dflop_bins(request_, loads_, given, kDflopExchanges), {}});
    }
  }

  void judge_overlap() {
    if (request_.costs->reduce_buckets == 0 || !has_rivals() || !all_exchanges_ || !best_.fits() ||
        !schedule_objection(request_.plan->schedule, *request_.plan).empty()) {
      return;
    }
    resumed(best_);
    std::optional<Placement> faster =
        faster_even_slots(request_, loads_, evaluator_, best_.placement);
    if (faster) {
      best_ = timed({std::move(*faster), {}});
    }
  }

  // False where the budget ends before the search of what lost.
  bool construct_second(int budget, int tuning) {
    ConstructionOptions options;
    options.tuning = request_.options.tuning ? tuning : 0;
    std::optional<Evaluated> fastest;
    const auto offer_constructed = [&](int evaluations) {
      options.budget = evaluators_.evaluations() + evaluations;
      for (Evaluated& made : construct(request_, start_loads(), evaluators_, options)) {
        if (!fastest || better(made, *fastest, evaluator_)) {
          fastest = made;
        }
        offer(std::move(made));
      }
    };
    offer_constructed(budget);
    if (request_.options.replica_balance) {
      const std::vector<std::vector<int>> together =
          deal_together(*request_.costs, start_loads(), request_.plan->replicas);
      if (!together.empty()) {
        options.dealt = &together;
        options.tuning /= 2;
        offer_constructed(budget * kTogetherPart / 100);
        options.dealt = nullptr;
        options.tuning *= 2;
      }
    }
    if (over_) {
      const Evaluated start = best_;
      options.start = &start;
      offer_constructed(budget);
    }
    pay(budget + tuning);
    cut(kSecondCuts);
    return !fastest || !better(best_, *fastest, evaluator_) || search_rival(*fastest);
  }

  // False where the budget does not pay for it.
  bool search_rival(const Evaluated& rival) {
    const int piece = kRivalSearch * request_.plan->replicas;
    if (!request_.options.search || !evaluator_.fixed_orders() || may_cut() || !rival.fits()) {
      return true;
    }
    if (spent_ + piece > budget_) {
      return false;
    }
    offer(search_in_groups(request_, loads_, 0, evaluators_, piece, 0, resumed(rival)));
    pay(piece);
    return true;
  }

  [[nodiscard]] bool may_cut() const {
    return request_.options.chunks && request_.plan->limits.chunks;
  }

  void cut(int most) {
    if (!may_cut()) {
      return;
    }
    most *= request_.plan->replicas;
    const Evaluated whole = best_;
    for (const bool all_at_once : {false, true}) {
      Evaluated best = resumed(whole);
      const int end = evaluator_.evaluations() + most / 2;
      cut_heavy_samples(request_, start_loads(), evaluator_, end, all_at_once, best);
      offer(std::move(best));
    }
    pay(most);
  }

  // For a part's evaluations, or for what was simulated of larger ones.
  void pay(int evaluations) {
    spent_ = std::max(spent_ + evaluations, evaluators_.usual_simulations());
  }

  // Until `end` evaluations per replica are spent; false where the budget ends before, or nothing
  // is left to find. No part of a piece: what it found may have a faster rule than what the whole
  // piece finds, and a larger budget would be slower.
  bool search_to(int end) {
    const int piece = end * request_.plan->replicas - spent_;
    if (!request_.options.search || spent_ + piece > budget_ || is_optimal()) {
      return false;
    }
    if (piece > 0) {
      mend_ = over_ && !mend_;
      const std::int64_t before = evaluator_.step_ns(best_.times);
      Evaluated start = resumed(mend_ ? *over_ : best_);
      const int kicks = stuck_ ? kKicks : 0;
      offer(search_in_groups(
          request_, loads_, bound_ns_.value_or(0), evaluators_, piece, kicks, std::move(start)));
      stuck_ = evaluator_.step_ns(best_.times) >= before;
      pay(piece);
    }
    return true;
  }

  // In growing pieces, until so many evaluations per replica are spent or search_to() ends it.
  void search_on(int most) {
    double end = spent_ / request_.plan->replicas;
    while (end < most && search_to(static_cast<int>(end))) {
      end = std::min<double>(most, std::max(end * kGrowth, end + 1));
    }
  }

  // Of constructions.
  [[nodiscard]] const BatchLoads& start_loads() const {
    return encoder_loads_ ? *encoder_loads_ : loads_;
  }

  // Times by the fastest rules, which the evaluator then replays.
  Evaluated timed(Evaluated candidate) {
    candidate.times.assign(at(request_.plan->replicas), {});
    evaluators_.for_each([&](int number) {
      for (const int replica : evaluators_.replicas_of(number)) {
        candidate.times[at(replica)] =
            evaluators_[number].choose_rule(candidate.placement, replica, RuleSet::kFastest);
      }
    });
    return candidate;
  }

  // The same, up to a replica that ends no earlier than the slowest of the best one: whether the
  // candidate may win.
  bool time_while_faster(Evaluated& candidate) {
    const std::int64_t slowest = best_.times[at(slowest_of(best_.times))].total_ns;
    candidate.times.assign(at(request_.plan->replicas), {});
    std::vector<char> faster(at(evaluators_.size()), 1);
    evaluators_.for_each([&](int number) {
      for (const int replica : evaluators_.replicas_of(number)) {
        ReplicaTimes& times = candidate.times[at(replica)];
        times = evaluators_[number].choose_rule(
            candidate.placement, replica, RuleSet::kFastest, slowest);
        if (!times.done || times.total_ns >= slowest) {
          faster[at(number)] = 0;
          return;
        }
      }
    });
    return std::count(faster.begin(), faster.end(), 0) == 0;
  }

  // The same where every replica has a time, by whatever rule: the slowest is timed by its fastest
  // one until no other ends later.
  bool time_slowest(Evaluated& candidate) {
    const std::int64_t latest = best_.times[at(slowest_of(best_.times))].total_ns;
    std::vector<char> by_fastest(candidate.times.size(), 0);
    for (int slow = slowest_of(candidate.times); by_fastest[at(slow)] == 0;
         slow = slowest_of(candidate.times)) {
      ReplicaTimes& times = candidate.times[at(slow)];
      evaluator_.use_rule(slow, times);
      times = evaluator_.choose_rule(candidate.placement, slow);
      by_fastest[at(slow)] = 1;
      if (times.total_ns >= latest) {
        return false;
      }
    }
    return true;
  }

  // The evaluator times each replica by the rule of its last time again. Of a candidate over the
  // limits every rule is near.
  Evaluated resumed(const Evaluated& candidate) {
    for (int replica = 0; replica < request_.plan->replicas; ++replica) {
      evaluator_.use_rule(replica, candidate.times[at(replica)]);
    }
    if (evaluator_.has_rules() && !candidate.fits()) {
      evaluator_.choose_rule(candidate.placement, slowest_of(candidate.times));
    }
    return candidate;
  }

  void offer(Evaluated candidate) {
    const bool has_times = !candidate.times.empty();
    if (has_times && evaluator_.has_rules() && candidate.fits() && best_.fits()) {
      if (!time_slowest(candidate)) {
        return;
      }
    } else if (!has_times || evaluator_.has_rules()) {
      if (!best_.fits()) {
        candidate = timed(std::move(candidate));
      } else if (!time_while_faster(candidate)) {
        return;
      }
    }
    if (better(candidate, best_, evaluator_)) {
      std::swap(candidate, best_);
    }
    keep_over(std::move(candidate));
    if (over_ && best_.fits() && over_->slowest_score() >= best_.slowest_score()) {
      over_.reset();
    }
  }

  // The fastest of what lost for its bytes alone.
  void keep_over(Evaluated candidate) {
    if (!candidate.fits() && (!over_ || candidate.slowest_score() < over_->slowest_score())) {
      over_ = std::move(candidate);
    }
  }

  const AssignRequest& request_;
  BatchLoads loads_;
  std::optional<BatchLoads> encoder_loads_;  // without `joint`
  StepEvaluators evaluators_;
  StepEvaluator& evaluator_;              // the first: whatever is not for each beside the others
  std::optional<std::int64_t> bound_ns_;  // once asked for
  int budget_;
  int spent_ = 0;  // by the parts' nominal sizes, or what they simulated if that is more
  bool all_exchanges_ = false;
  bool mend_ = false;
  bool stuck_ = false;  // the last piece of the search found nothing better
  Evaluated best_;
  std::optional<Evaluated> over_;  // faster than best_, but for its penalty
};

// Says where the best candidate misses the limits the most.
[[noreturn]] void throw_nothing_fits(const AssignRequest& request, const Evaluated& nearest) {
  const StepAssignment assignment = to_assignment(*request.costs, nearest.placement);
  const Program program =
      build_program(*request.plan, assignment, *request.costs, request.plan->schedule);
  const auto excess = worst_excess(program, *request.costs, request.plan->limits);
  throw OverLimits(
      fmt::format("no assignment found that keeps the memory limits; the nearest: {}",
                  excess ? to_string(program, *excess) : "over the limit only in the search"),
      excess.value_or(MemoryExcess{}));
}

// The leanest slots count, whatever was found.
void fall_back(const AssignRequest& request, Evaluated& best) {
  if (!request.options.choose_slots) {
    return;
  }
  StepEvaluator evaluator(*request.plan, *request.costs);
  Evaluated lean{one_sample_a_slot(request), {}};
  for (int replica = 0; replica < request.plan->replicas; ++replica) {
    lean.times.push_back(evaluator.choose_rule(lean.placement, replica));
  }
  if (better(lean, best, evaluator)) {
    best = std::move(lean);
  }
}

}  // namespace

Placement entrain_policy(const AssignRequest& request) {
  if (request.objective == Objective::kBalance) {
    return balance_objective(request);
  }
  Evaluated best = Sequence(request).run();
  if (!best.fits()) {
    fall_back(request, best);
  }
  if (!best.fits()) {
    throw_nothing_fits(request, best);
  }
  return std::move(best.placement);
}

}  // namespace entrain
