#include "entrain/core/planner/plan_search.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/parallel.h"
#include "entrain/core/planner/memory_reason.h"
#include "entrain/core/planner/plan_scorer.h"

namespace entrain {
namespace {

using std::int64_t;

struct Entry {
  int64_t bound_ns = 0;     // over all batches
  int64_t estimate_ns = 0;  // likewise
  int64_t number = 0;       // in the order of the space
  PlanShape config;
  int64_t guess_ns = kNever;  // PlanScorer::guess(), of those that are guessed
};

// Configurations that are guessed: the first by estimate, as long as they count no more units on
// stages (plan_units.h), and all of one lane.
constexpr std::int64_t kMostGuesses = 64;
constexpr std::int64_t kMostGuessUnits = 700'000;

// A part with kSharedLanes is searched after the same part without, in an eighth of its budget.
// Where that part is not proven, an eighth of its units are guessed, four configurations at most,
// and only what is guessed no slower than the best guess there is simulated.
constexpr int kSharedShare = 8;
constexpr std::int64_t kMostSharedGuesses = 4;

using Undecided = std::pair<std::size_t, PlanCandidate>;  // index of its entry

bool lower_bound_first(const Entry& a, const Entry& b) {
  return std::pair(a.bound_ns, a.number) < std::pair(b.bound_ns, b.number);
}

// One replica is one lane, as in plain data parallelism with or without tensor parallelism.
bool is_one_lane(const Entry& entry) {
  return lanes_of(entry.config) == 1;
}

// What a part tells the one that adds shared lanes to it. A larger budget must not find less: the
// first two do not depend on it, and of the others a larger one makes more of the second part.
struct PartFigures {
  int64_t least_guess_ns = kNever;
  std::vector<int64_t> first_steps;  // of the plan simulated first, by the best guess
  int64_t threshold_ns = kNever;
  bool fits = false;
  bool proven = false;
};

// What a part of the space came to.
struct PartResult {
  PlanSearchResult found;        // its lists and lower bound
  std::vector<int64_t> left_ns;  // bounds of what the budget left undecided
  PartFigures figures;
};

// The search of one part of the space: configurations with the same features.
class Search {
 public:
  // `beside`: null, or of the part to which this one adds shared lanes.
  Search(const PlanSearchRequest& request,
         PlanScorer& scorer,
         unsigned features,
         const PartFigures* beside)
      : request_(request), scorer_(scorer), features_(features), beside_(beside) {}

  PartResult run() {
    list_entries();
    const std::size_t first = order_entries();
    judged_.resize(entries_.size(), 0);
    for (std::size_t index = 0; index < first; ++index) {
      judge_once(index);
    }
    for (std::size_t index = 0; index < entries_.size(); ++index) {
      judge_once(index);
      while (improved_ && beside_ == nullptr) {
        improved_ = false;
        for (const std::size_t near : near_best()) {
          judge_once(near);
        }
      }
    }
    judge_set_aside();
    judge_stopped();
    if (not_held_ns_ < kNever) {
      left_ns_.push_back(not_held_ns_);
    }
    result_.simulated_steps = scorer_.simulated_steps();
    figures_.threshold_ns = threshold();
    figures_.fits = !result_.plans.empty();
    figures_.proven = std::all_of(
        left_ns_.begin(), left_ns_.end(), [&](int64_t bound) { return bound >= threshold(); });
    return {std::move(result_), std::move(left_ns_), std::move(figures_)};
  }

 private:
  // The configurations with the lowest bounds, at most as many as the request holds.
  void list_entries() {
    int64_t number = 0;
    int64_t least = kNever;
    const PlanBounds& bounds = scorer_.bounds();
    for (const int replicas : scorer_.space().replica_counts()) {
      const PlanSpace::Filter filter = [&](int module, int index, int stages) {
        const PlanBound bound = bounds.module_bound(replicas, module, index, stages);
        if (bound.cause == BoundCause::kMemory) {
          return false;
        }
        if (full() && bound.ns >= entries_.front().bound_ns) {
          leave(bound.ns);
          return false;
        }
        return true;
      };
      scorer_.space().for_each(replicas, filter, [&](const PlanShape& config) {
        const PlanBound bound = bounds.bound(config);
        if (bound.cause == BoundCause::kMemory) {
          return;  // other virtual stages of a module may fit
        }
        if (scorer_.space().features(config) == features_) {
          least = std::min(least, bound.ns);
          keep({bound.ns, 0, number, config});
        }
        ++number;
      });
    }
    if (beside_ != nullptr) {
      std::erase_if(entries_, [&](const Entry& of) { return of.bound_ns >= threshold(); });
    }
    for (Entry& entry : entries_) {
      entry.estimate_ns = bounds.estimate(entry.config);
    }
    result_.lower_bound_ns = least == kNever ? 0 : least / num_batches();
  }

  // By estimate, but first by guess those that are guessed. Returns how many are judged before
  // others have a say: the best guess and all of one lane.
  std::size_t order_entries() {
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.estimate_ns, a.number) < std::pair(b.estimate_ns, b.number);
    });
    auto end = entries_.begin();
    int64_t units = 0;
    const int64_t most = is_guided() ? kMostSharedGuesses : kMostGuesses;
    const int64_t most_units = is_guided() ? kMostGuessUnits / kSharedShare : kMostGuessUnits;
    while (end != entries_.end() && end - entries_.begin() < most && units < most_units) {
      units += scorer_.guess_units(end->config);
      ++end;
    }
    end = std::stable_partition(end, entries_.end(), is_one_lane);
    parallel_for(end - entries_.begin(), request_.threads, [&](int64_t index) {
      Entry& entry = entries_[static_cast<std::size_t>(index)];
      entry.guess_ns = scorer_.guess(entry.config);
    });
    std::stable_sort(entries_.begin(), end, [](const Entry& a, const Entry& b) {
      return a.guess_ns < b.guess_ns;
    });
    if (!entries_.empty()) {
      figures_.least_guess_ns = entries_.front().guess_ns;
    }
    const auto second = entries_.begin() + (entries_.empty() ? 0 : 1);
    return static_cast<std::size_t>(std::stable_partition(second, end, is_one_lane) -
                                    entries_.begin());
  }

  [[nodiscard]] int64_t num_batches() const { return scorer_.num_batches(); }

  // Whether guesses decide what is simulated: shared lanes beside others of which not all is known.
  [[nodiscard]] bool is_guided() const {
    return beside_ != nullptr && !beside_->proven && request_.most_simulations != 0;
  }
  [[nodiscard]] bool is_far_by_guess(const Entry& entry) const {
    return is_guided() && entry.guess_ns > beside_->least_guess_ns;
  }

  [[nodiscard]] bool full() const {
    return static_cast<int>(entries_.size()) >= request_.most_candidates;
  }

  // Holds the lowest bounds: a heap with the highest of them in front.
  void keep(Entry entry) {
    if (full()) {
      if (!lower_bound_first(entry, entries_.front())) {
        leave(entry.bound_ns);
        return;
      }
      std::pop_heap(entries_.begin(), entries_.end(), lower_bound_first);
      leave(entries_.back().bound_ns);
      entries_.pop_back();
    }
    entries_.push_back(std::move(entry));
    std::push_heap(entries_.begin(), entries_.end(), lower_bound_first);
  }

  void leave(int64_t bound_ns) { not_held_ns_ = std::min(not_held_ns_, bound_ns); }

  // The time to beat to be among the first: that of the last of them, if enough are known.
  [[nodiscard]] const PlanCandidate* last_of_first() const {
    const auto last = static_cast<std::size_t>(request_.runners_up);
    return result_.plans.size() <= last ? nullptr : &result_.plans[last];
  }
  [[nodiscard]] int64_t threshold() const {
    const PlanCandidate* last = last_of_first();
    const int64_t own = last == nullptr ? kNever : total_ns(*last);
    return beside_ == nullptr ? own : std::min(own, beside_->threshold_ns);
  }

  [[nodiscard]] bool spent() const {
    const int share = beside_ == nullptr ? 1 : kSharedShare;
    const int64_t steps = int64_t{share} * scorer_.simulated_steps();
    if (request_.most_simulations >= 0) {
      return request_.most_simulations > 0 && steps >= request_.most_simulations;
    }
    return steps >= default_budget(request_.patience) ||
           (steps >= kLeastSimulations &&
            share * scorer_.simulated_unit_stages() >= request_.patience * kMostUnitStages);
  }

  // Those that differ from the best plan in the shape of one module or in where lanes went, the
  // nearest in lanes first, then as the order of entries has them: only what comes first under a
  // budget hangs on it.
  [[nodiscard]] std::vector<std::size_t> near_best() const {
    constexpr std::size_t kMost = 4;
    const PlanShape& best = result_.best().config;
    std::vector<std::pair<int, std::size_t>> similar;  // lanes that went, and index
    for (std::size_t index = 0; index < entries_.size(); ++index) {
      const PlanShape& other = entries_[index].config;
      if (judged_[index] != 0 || other.replicas != best.replicas || other.layout != best.layout) {
        continue;
      }
      int shapes = 0;
      int degrees = 0;
      int lanes = 0;
      for (std::size_t module = 0; module < best.modules.size(); ++module) {
        shapes += other.modules[module] == best.modules[module] ? 0 : 1;
        degrees += other.modules[module].degrees == best.modules[module].degrees ? 0 : 1;
        lanes += std::abs(other.modules[module].stages - best.modules[module].stages);
      }
      if (shapes <= 1 || degrees == 0) {
        similar.emplace_back(lanes, index);
      }
    }
    const std::size_t count = std::min(kMost, similar.size());
    std::partial_sort(
        similar.begin(), similar.begin() + static_cast<std::ptrdiff_t>(count), similar.end());
    std::vector<std::size_t> result;
    for (std::size_t i = 0; i < count; ++i) {
      result.push_back(similar[i].second);
    }
    return result;
  }

  void judge_once(std::size_t index) {
    if (judged_[index] == 0) {
      judged_[index] = 1;
      judge(entries_[index]);
    }
  }

  void judge(const Entry& entry) {
    if (entry.bound_ns >= threshold()) {
      return;
    }
    if (is_far_by_guess(entry) ||
        (spent() && (!result_.plans.empty() || (beside_ != nullptr && beside_->fits)))) {
      leave_entry(entry.bound_ns);
      return;
    }
    take(scorer_.score(entry.config, threshold(), rival()), entry);
    if (index_of(entry) == 0 && !result_.plans.empty()) {
      figures_.first_steps = result_.best().steps;
    }
  }

  // What others are set aside by, once there is a threshold.
  [[nodiscard]] std::span<const int64_t> rival() const {
    if (beside_ != nullptr) {
      return beside_->first_steps;
    }
    return last_of_first() == nullptr ? std::span<const int64_t>{} : result_.best().steps;
  }

  // Those that were set aside, the nearest to the best plan first: as far as the budget goes.
  void judge_set_aside() {
    std::vector<Undecided> set_aside = std::exchange(set_aside_, {});
    sort_by_nearness(set_aside);
    for (Undecided& undecided : set_aside) {
      const Entry& entry = entries_[undecided.first];
      PlanCandidate& candidate = undecided.second;
      const int64_t bound = scorer_.may_recompute()
                                ? entry.bound_ns
                                : std::max(entry.bound_ns, candidate.mean_ns * num_batches());
      if (bound >= threshold()) {
        candidate.state = CandidateState::kStopped;
        candidate.mean_ns = bound / num_batches();
        result_.stopped.push_back(std::move(candidate));
      } else if (spent() || is_guided()) {
        leave_entry(bound);
        set_aside_.push_back(std::move(undecided));
      } else {
        take(scorer_.score(entry.config, threshold()), entry);
      }
    }
    sort_by_nearness(set_aside_);
    for (Undecided& undecided : set_aside_) {
      result_.set_aside.push_back(std::move(undecided.second));
    }
  }

  void sort_by_nearness(std::vector<Undecided>& candidates) const {
    std::sort(candidates.begin(), candidates.end(), [&](const Undecided& a, const Undecided& b) {
      const std::vector<int64_t>& best =
          beside_ == nullptr ? result_.best().steps : beside_->first_steps;
      return std::pair(time_over(a.second, best), entries_[a.first].number) <
             std::pair(time_over(b.second, best), entries_[b.first].number);
    });
  }

  // A plan that was stopped might not have fitted the batches that were left, and its configuration
  // be faster with recomputation: nothing is proven of that but the configuration's own bound.
  void judge_stopped() {
    for (const auto& [index, candidate] : std::exchange(undecided_, {})) {
      const Entry& entry = entries_[index];
      if (entry.bound_ns >= threshold()) {
        continue;
      }
      if (spent()) {
        leave_entry(entry.bound_ns);
      } else if (std::optional<PlanCandidate> other = scorer_.score_rest(candidate)) {
        std::erase_if(result_.stopped,
                      [&](const PlanCandidate& of) { return of.config == entry.config; });
        take(std::move(*other), entry);
      }
    }
  }

  void leave_entry(int64_t bound_ns) { left_ns_.push_back(bound_ns); }

  [[nodiscard]] std::size_t index_of(const Entry& entry) const {
    return static_cast<std::size_t>(&entry - entries_.data());
  }

  void take(PlanCandidate candidate, const Entry& entry) {
    switch (candidate.state) {
      case CandidateState::kNoFit:
        result_.no_fit.push_back(std::move(candidate));
        break;
      case CandidateState::kStopped:
        if (scorer_.may_recompute() && !candidate.recompute_tried) {
          undecided_.emplace_back(index_of(entry), candidate);
        }
        result_.stopped.push_back(std::move(candidate));
        break;
      case CandidateState::kSetAside:
        set_aside_.emplace_back(index_of(entry), std::move(candidate));
        break;
      case CandidateState::kSimulated:
        insert(std::move(candidate), entry.number);
        break;
    }
  }

  // Behind plans of equal time that come earlier in the space.
  void insert(PlanCandidate candidate, int64_t number) {
    const std::pair key(total_ns(candidate), number);
    std::size_t position = 0;
    while (position < keys_.size() && keys_[position] < key) {
      ++position;
    }
    improved_ = improved_ || position == 0;
    keys_.insert(keys_.begin() + static_cast<std::ptrdiff_t>(position), key);
    result_.plans.insert(result_.plans.begin() + static_cast<std::ptrdiff_t>(position),
                         std::move(candidate));
    scorer_.set_lead(total_ns(result_.best()));
  }

  const PlanSearchRequest& request_;
  PlanScorer& scorer_;
  unsigned features_;
  const PartFigures* beside_;
  PartFigures figures_;
  PlanSearchResult result_;
  std::vector<Entry> entries_;
  std::vector<char> judged_;                       // [entry]
  bool improved_ = false;                          // the best plan, since last asked
  std::vector<std::pair<int64_t, int64_t>> keys_;  // [plan of the result] total and number
  std::vector<Undecided> undecided_;               // stopped, unknown whether they fit
  std::vector<Undecided> set_aside_;
  int64_t not_held_ns_ = kNever;  // least bound of what was not held
  std::vector<int64_t> left_ns_;  // bounds of what the budget left
};

// One part, whose best plan fits the further batches if it beats `to_beat`, the best of other
// parts.
PartResult search_part(const PlanSearchRequest& request,
                       PlanScorer& scorer,
                       unsigned features,
                       const PartFigures* beside,
                       int64_t to_beat) {
  scorer.start_part();
  PartResult result = Search(request, scorer, features, beside).run();
  // Every turn knows one more batch that breaks plans.
  while (result.found.fits() && total_ns(result.found.best()) < to_beat &&
         request.further.count() > 0) {
    PlanCandidate best = result.found.best();
    const FurtherMiss found = scorer.check_all(best);
    if (found.fits()) {
      result.found.plans.front().plan.certificate.further_batches = found.batches;
      break;
    }
    scorer.start_again();
    result = Search(request, scorer, features, beside).run();
  }
  return result;
}

// What all parts came to.
class Summary {
 public:
  // The scorers of the parts; the last one's plans need least memory.
  Summary(const PlanSearchRequest& request, const std::vector<std::unique_ptr<PlanScorer>>& scorers)
      : request_(request), scorers_(scorers) {}

  void add(PartResult part) {
    if (part.found.fits()) {
      best_ns_ = std::min(best_ns_, total_ns(part.found.best()));
    }
    for (const auto list : {&PlanSearchResult::plans,
                            &PlanSearchResult::stopped,
                            &PlanSearchResult::set_aside,
                            &PlanSearchResult::no_fit}) {
      std::move(
          (part.found.*list).begin(), (part.found.*list).end(), std::back_inserter(result_.*list));
    }
    result_.simulated_steps += part.found.simulated_steps;
    const int64_t bound = part.found.lower_bound_ns;
    if (bound > 0 && (result_.lower_bound_ns == 0 || bound < result_.lower_bound_ns)) {
      result_.lower_bound_ns = bound;
    }
    left_ns_.insert(left_ns_.end(), part.left_ns.begin(), part.left_ns.end());
  }

  // Of the first of the fastest plans.
  [[nodiscard]] int64_t best_ns() const { return best_ns_; }

  // Of one replica, found with a sharded optimizer and without: all but the first.
  static void drop_twins(std::vector<PlanCandidate>& plans) {
    for (auto plan = plans.begin(); plan != plans.end();) {
      const bool known = plan->config.replicas == 1 &&
                         std::any_of(plans.begin(), plan, [&](const PlanCandidate& other) {
                           return other.config == plan->config && other.steps == plan->steps;
                         });
      plan = known ? plans.erase(plan) : plan + 1;
    }
  }

  PlanSearchResult finish() {
    const auto by_total = [](const PlanCandidate& a, const PlanCandidate& b) {
      return total_ns(a) < total_ns(b);
    };
    const auto by_mean = [](const PlanCandidate& a, const PlanCandidate& b) {
      return a.mean_ns < b.mean_ns;
    };
    const auto by_nearness = [&](const PlanCandidate& a, const PlanCandidate& b) {
      const std::vector<int64_t>& best = result_.best().steps;
      return time_over(a, best) < time_over(b, best);
    };
    std::stable_sort(result_.plans.begin(), result_.plans.end(), by_total);
    drop_twins(result_.plans);
    stop_slow_set_aside();
    drop_twins(result_.stopped);
    drop_twins(result_.set_aside);
    std::stable_sort(result_.stopped.begin(), result_.stopped.end(), by_mean);
    std::stable_sort(result_.set_aside.begin(), result_.set_aside.end(), by_nearness);
    for (const std::unique_ptr<PlanScorer>& scorer : scorers_) {
      summarise_cuts(*scorer);
    }
    std::erase_if(left_ns_, [&](int64_t bound) { return bound >= threshold(); });
    result_.left = std::ssize(left_ns_);
    result_.complete = left_ns_.empty();
    result_.left_bound_ns =
        result_.complete ? 0 : *std::min_element(left_ns_.begin(), left_ns_.end()) / num_batches();
    if (!result_.fits()) {
      result_.reason = memory_reason(*scorers_.back(), request_, result_.no_fit);
      return std::move(result_);
    }
    result_.dynamic_regret = regret();
    PlanCandidate& best = result_.plans.front();
    PlanCertificate& certificate = best.plan.certificate;
    certificate.simulated_s = static_cast<double>(best.mean_ns) * 1e-9;
    certificate.lower_bound_s = static_cast<double>(result_.lower_bound_ns) * 1e-9;
    certificate.ratio =
        result_.lower_bound_ns > 0 ? certificate.simulated_s / certificate.lower_bound_s : 0;
    certificate.dynamic_regret = result_.dynamic_regret;
    result_.further_batches = certificate.further_batches;
    return std::move(result_);
  }

 private:
  [[nodiscard]] int64_t num_batches() const { return std::ssize(request_.batches); }
  // The time to beat to be among the first: that of the last of them, if enough are known.
  [[nodiscard]] int64_t threshold() const {
    const auto last = static_cast<std::size_t>(request_.runners_up);
    return result_.plans.size() <= last ? kNever : total_ns(result_.plans[last]);
  }

  [[nodiscard]] double regret() const {
    int64_t best_of_each = 0;
    const std::vector<int64_t>& steps = result_.best().steps;
    for (std::size_t batch = 0; batch < steps.size(); ++batch) {
      int64_t best = steps[batch];
      for (const std::vector<PlanCandidate>* list :
           {&result_.plans, &result_.stopped, &result_.set_aside}) {
        for (const PlanCandidate& other : *list) {
          best = batch < other.steps.size() ? std::min(best, other.steps[batch]) : best;
        }
      }
      best_of_each += best;
    }
    return best_of_each == 0
               ? 0
               : static_cast<double>(total_ns(result_.best())) / static_cast<double>(best_of_each) -
                     1;
  }

  // What was set aside in one part may be proven slower than what another found.
  void stop_slow_set_aside() {
    const auto least_ns = [&](const PlanCandidate& of) {  // that its plans may take
      return scorers_.front()->may_recompute() ? of.bound_ns : std::max(of.bound_ns, of.mean_ns);
    };
    std::vector<PlanCandidate> set_aside = std::exchange(result_.set_aside, {});
    for (PlanCandidate& candidate : set_aside) {
      const int64_t least = least_ns(candidate);
      if (least < threshold() / num_batches()) {
        result_.set_aside.push_back(std::move(candidate));
        continue;
      }
      candidate.state = CandidateState::kStopped;
      candidate.mean_ns = least;
      result_.stopped.push_back(std::move(candidate));
    }
  }

  CutSummary& summary(BoundCause cause, int module) {
    const auto found =
        std::find_if(result_.cuts.begin(), result_.cuts.end(), [&](const CutSummary& other) {
          return other.cause == cause && other.module == module;
        });
    if (found != result_.cuts.end()) {
      return *found;
    }
    CutSummary& fresh = result_.cuts.emplace_back();
    fresh.cause = cause;
    fresh.module = module;
    return fresh;
  }

  void count_cut(CutSummary& of, int64_t ns, const std::function<std::string()>& who) {
    ++of.count;
    const int64_t mean = ns / num_batches();
    if (of.cause != BoundCause::kMemory && (of.nearest_ns == 0 || mean < of.nearest_ns)) {
      of.nearest_ns = mean;
      of.nearest = who();
    }
  }

  // Shapes of modules that a bound cuts by themselves; of the others, configurations.
  void summarise_cuts(const PlanScorer& scorer) {
    const int64_t best = threshold();
    const PlanSpace& space = scorer.space();
    for (const int replicas : space.replica_counts()) {
      for_each_shape(space, replicas, [&](int module, int index, int stages) {
        ++result_.shapes;
        const PlanBound bound = scorer.bounds().module_bound(replicas, module, index, stages);
        if (bound.cause == BoundCause::kMemory || bound.ns >= best) {
          count_cut(summary(bound.cause, module), bound.ns, [&] {
            const ModuleShape shape{
                space.degrees()[static_cast<std::size_t>(module)][static_cast<std::size_t>(index)],
                stages};
            return fmt::format(
                "{} replicas of {}", replicas, describe(shape, *request_.model, module));
          });
        }
      });
      const PlanSpace::Filter filter = [&](int module, int index, int stages) {
        const PlanBound bound = scorer.bounds().module_bound(replicas, module, index, stages);
        return bound.cause != BoundCause::kMemory && bound.ns < best;
      };
      space.for_each(replicas, filter, [&](const PlanShape& config) {
        ++result_.configurations;
        const PlanBound bound = scorer.bounds().bound(config);
        const bool memory = bound.cause == BoundCause::kMemory;
        if (memory || bound.ns >= best) {
          count_cut(summary(bound.cause, memory ? bound.module : -1), bound.ns, [&] {
            return describe(config, *request_.model);
          });
        }
      });
    }
  }

  void for_each_shape(const PlanSpace& space,
                      int replicas,
                      const std::function<void(int, int, int)>& visit) const {
    const int devices = space.num_devices() / replicas;
    for (int module = 0; module < request_.model->num_modules(); ++module) {
      const std::vector<Degrees>& degrees = space.degrees()[static_cast<std::size_t>(module)];
      for (std::size_t index = 0; index < degrees.size(); ++index) {
        const int layers = num_layers(*request_.model, module);
        const int most = std::min(layers / space.virtual_stages(module, 1).first,
                                  devices / degrees[index].devices());
        for (int stages = 1; stages <= most; ++stages) {
          visit(module, static_cast<int>(index), stages);
        }
      }
    }
  }

  const PlanSearchRequest& request_;
  const std::vector<std::unique_ptr<PlanScorer>>& scorers_;
  PlanSearchResult result_;
  int64_t best_ns_ = kNever;
  std::vector<int64_t> left_ns_;  // bounds of what the budget left
};

}  // namespace

PlanSearchResult search_plans(const PlanSearchRequest& request) {
  std::vector<PlanSearchRequest> requests = {request};
  if (request.any_optimizer) {
    requests.front().state.shard_optimizer = false;
    requests.push_back(requests.front());
    requests.back().state.shard_optimizer = true;
  }
  std::vector<std::unique_ptr<PlanScorer>> scorers;
  Summary summary(request, scorers);
  for (const PlanSearchRequest& one : requests) {
    PlanScorer& scorer = *scorers.emplace_back(std::make_unique<PlanScorer>(one));
    std::map<unsigned, PartFigures> figures;  // of parts by features, without kSharedLanes
    for (const unsigned features : scorer.space().feature_sets()) {
      const bool shared = (features & kSharedLanes) != 0;
      const PartFigures* beside = shared ? &figures.at(features & ~kSharedLanes) : nullptr;
      PartResult part = search_part(one, scorer, features, beside, summary.best_ns());
      figures[features] = std::move(part.figures);
      summary.add(std::move(part));
    }
  }
  return summary.finish();
}

}  // namespace entrain
