#include "entrain/core/planner/part_search.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "entrain/core/base/parallel.h"
#include "entrain/core/planner/plan_order.h"

namespace entrain {
namespace {

using std::int64_t;

// A part with kSharedLanes is searched after the same part without, in an eighth of its budget.
// Where that part is not proven, only a few configurations are guessed (plan_order.h), and only
// those guessed less than 6 % slower than the first plan that fitted there are simulated: other
// levels of recomputation than the guessed one may win a tenth. The guess is by the policy itself,
// since `lpt-2d` can take 1.8 times as long on pipelines of a few heavy samples and no longer on
// one lane.
constexpr int kSharedShare = 8;

// Scouts among so many of the best guesses are simulated once the default budget is spent,
// whatever a larger one is, and those near one that becomes the best in as much again.
constexpr std::size_t kScoutGuesses = 3;
constexpr int kScoutPercent = 200;
constexpr int kWhatever = 1'000'000;  // percent: more than any part spends

// Among so many configurations steps of plans far behind are given up, if there is a budget: it
// proves nothing of most of them anyway. Of fewer, whole steps may prove that they are slower.
constexpr std::size_t kMostWithoutGivingUp = 250;

using Undecided = std::pair<std::size_t, PlanCandidate>;  // index of its entry

bool estimate_first(const PlanEntry& a, const PlanEntry& b) {
  return std::pair(a.estimate_ns, a.number) < std::pair(b.estimate_ns, b.number);
}

bool guess_first(const PlanEntry& a, const PlanEntry& b) {
  return a.guess_ns < b.guess_ns;
}

bool lower_bound_first(const PlanEntry& a, const PlanEntry& b) {
  return std::pair(a.bound_ns, a.number) < std::pair(b.bound_ns, b.number);
}

// One replica is one lane, as in plain data parallelism with or without tensor parallelism.
bool is_one_lane(const PlanEntry& entry) {
  return lanes_of(entry.config) == 1;
}

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
    scorer_.set_gives_up(entries_.size() > kMostWithoutGivingUp && request_.most_simulations != 0);
    judged_.resize(entries_.size(), 0);
    set_lead();
    for (std::size_t index = 0; index < first; ++index) {
      judge_once(index);
    }
    for (std::size_t index = 0; index < entries_.size(); ++index) {
      if (usually_spent()) {
        send_scouts();
      }
      judge_once(index);
      walk(kWalkPercent);
    }
    send_scouts();
    judge_set_aside();
    judge_stopped();
    if (not_held_ns_ < kNoStop) {
      left_ns_.push_back(not_held_ns_);
    }
    result_.simulated_steps = scorer_.simulated_steps();
    figures_.threshold_ns = threshold();
    figures_.fits = !result_.plans.empty();
    figures_.best_ns = figures_.fits ? total_ns(result_.best()) : kNoStop;
    figures_.proven = std::all_of(
        left_ns_.begin(), left_ns_.end(), [&](int64_t bound) { return bound >= threshold(); });
    return {std::move(result_), std::move(left_ns_), std::move(figures_)};
  }

 private:
  // The configurations with the lowest bounds, at most as many as the request holds.
  void list_entries() {
    int64_t number = 0;
    int64_t least = kNoStop;
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
      std::erase_if(entries_, [&](const PlanEntry& of) { return of.bound_ns >= threshold(); });
    }
    for (PlanEntry& entry : entries_) {
      entry.estimate_ns = bounds.estimate(scorer_.with_suited_slots(entry.config));
    }
    result_.lower_bound_ns = least == kNoStop ? 0 : least / num_batches();
  }

  // By estimate, but first by guess those that are guessed first. Returns how many are judged
  // before others have a say: the best guess and all of one lane.
  std::size_t order_entries() {
    std::sort(entries_.begin(), entries_.end(), estimate_first);
    const GuessChoice chosen =
        choose_guesses(entries_,
                       [this](const PlanShape& config) { return scorer_.guess_units(config); },
                       {.guided = is_guided(), .size_scale = size_scale()});
    const auto among = [](const std::set<int64_t>& numbers) {
      return [&numbers](const PlanEntry& entry) { return numbers.count(entry.number) > 0; };
    };
    const auto end = std::stable_partition(entries_.begin(), entries_.end(), among(chosen.first));
    const auto last = std::stable_partition(end, entries_.end(), among(chosen.scouts));
    parallel_for(last - entries_.begin(), request_.threads, [&](int64_t index) {
      PlanEntry& entry = entries_[static_cast<std::size_t>(index)];
      entry.guess_ns = scorer_.guess(entry.config, is_guided(), far_guess_ns());
    });
    list_scouts(last - entries_.begin(), chosen.scouts);
    std::stable_sort(entries_.begin(), end, guess_first);
    std::sort(end, entries_.end(), estimate_first);
    const auto second = entries_.begin() + (entries_.empty() ? 0 : 1);
    return static_cast<std::size_t>(std::stable_partition(second, end, is_one_lane) -
                                    entries_.begin());
  }

  // Of the first entries, which are guessed.
  void list_scouts(std::ptrdiff_t count, const std::set<int64_t>& scouts) {
    std::vector<PlanEntry> guessed(entries_.begin(), entries_.begin() + count);
    std::stable_sort(guessed.begin(), guessed.end(), guess_first);
    guessed.resize(std::min(guessed.size(), kScoutGuesses));
    for (const PlanEntry& entry : guessed) {
      if (scouts.count(entry.number) > 0) {
        scouts_.push_back(entry.number);
      }
    }
  }

  // Plans near the best one, as long as they are better.
  void walk(int percent) {
    percent_ = percent;
    while (improved_ && beside_ == nullptr) {
      improved_ = false;
      for (const std::size_t near : near_plan(entries_, judged_, result_.best().config, before_)) {
        judge_once(near);
        if (improved_) {
          break;
        }
      }
    }
    percent_ = 100;
  }

  // Once.
  void send_scouts() {
    for (const int64_t scout : std::exchange(scouts_, {})) {
      const auto entry = std::find_if(entries_.begin(),
                                      entries_.end(),
                                      [scout](const PlanEntry& of) { return of.number == scout; });
      percent_ = kWhatever;
      judge_once(static_cast<std::size_t>(entry - entries_.begin()));
      walk(kScoutPercent);
    }
  }

  // GuessLimits::size_scale
  [[nodiscard]] int64_t size_scale() const {
    constexpr double kSamples = 512;
    const auto samples = static_cast<double>(request_.batches.front().size());
    return std::max<int64_t>(1, static_cast<int64_t>(std::sqrt(samples / kSamples)));
  }

  [[nodiscard]] int64_t num_batches() const { return scorer_.num_batches(); }

  // Whether guesses decide what is simulated: shared lanes beside others of which not all is known.
  [[nodiscard]] bool is_guided() const {
    return beside_ != nullptr && !beside_->proven && request_.most_simulations != 0;
  }
  // What is guessed slower is not simulated.
  [[nodiscard]] int64_t far_guess_ns() const {
    return is_guided() && !beside_->first_steps.empty() ? beside_->first_steps.front() / 50 * 53
                                                        : kNoStop;
  }

  [[nodiscard]] bool full() const {
    return static_cast<int>(entries_.size()) >= request_.most_candidates;
  }

  // Holds the lowest bounds: a heap with the highest of them in front.
  void keep(PlanEntry entry) {
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
    const int64_t own = last == nullptr ? kNoStop : total_ns(*last);
    return beside_ == nullptr ? own : std::min(own, beside_->threshold_ns);
  }

  [[nodiscard]] bool spent() const {
    const int share = beside_ == nullptr ? 1 : kSharedShare;
    const int64_t steps = int64_t{share} * scorer_.simulated_steps();
    if (request_.most_simulations >= 0) {
      return request_.most_simulations > 0 && steps >= request_.most_simulations;
    }
    return usually_spent();
  }
  // By default.
  [[nodiscard]] bool usually_spent() const {
    const int64_t share = beside_ == nullptr ? 1 : kSharedShare;
    const int64_t steps = share * scorer_.simulated_steps();
    return 100 * steps >= int64_t{percent_} * default_budget(request_.patience) ||
           (steps >= kLeastSimulations &&
            100 * share * scorer_.simulated_unit_stages() >=
                percent_ * std::max<int64_t>(request_.patience, size_scale()) * kMostUnitStages);
  }

  void judge_once(std::size_t index) {
    if (judged_[index] == 0) {
      judged_[index] = 1;
      judge(entries_[index]);
    }
  }

  void judge(const PlanEntry& entry) {
    if (entry.bound_ns >= threshold()) {
      return;
    }
    if (entry.guess_ns > far_guess_ns() ||
        (spent() && (!result_.plans.empty() || (beside_ != nullptr && beside_->fits)))) {
      leave_entry(entry.bound_ns);
      return;
    }
    take(scorer_.score(entry.config, threshold(), rival()), entry);
    if (figures_.first_steps.empty() && !result_.plans.empty()) {
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
      const PlanEntry& entry = entries_[undecided.first];
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
      const PlanEntry& entry = entries_[index];
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

  [[nodiscard]] std::size_t index_of(const PlanEntry& entry) const {
    return static_cast<std::size_t>(&entry - entries_.data());
  }

  void take(PlanCandidate candidate, const PlanEntry& entry) {
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
    if (position == 0 && !result_.plans.empty()) {
      before_ = result_.best().config;
    }
    keys_.insert(keys_.begin() + static_cast<std::ptrdiff_t>(position), key);
    result_.plans.insert(result_.plans.begin() + static_cast<std::ptrdiff_t>(position),
                         std::move(candidate));
    set_lead();
  }

  // What is slower than the best plan needs no check of further batches.
  void set_lead() {
    const int64_t own = result_.plans.empty() ? kNoStop : total_ns(result_.best());
    scorer_.set_lead(beside_ == nullptr ? own : std::min(own, beside_->best_ns));
  }

  const PlanSearchRequest& request_;
  PlanScorer& scorer_;
  unsigned features_;
  const PartFigures* beside_;
  PartFigures figures_;
  PlanSearchResult result_;
  std::vector<PlanEntry> entries_;
  std::vector<char> judged_;                       // [entry]
  bool improved_ = false;                          // the best plan, since last asked
  std::vector<int64_t> scouts_;                    // numbers of those not yet sent
  int percent_ = 100;                              // of the default budget that may be spent
  PlanShape before_;                               // that was the best before it
  std::vector<std::pair<int64_t, int64_t>> keys_;  // [plan of the result] total and number
  std::vector<Undecided> undecided_;               // stopped, unknown whether they fit
  std::vector<Undecided> set_aside_;
  int64_t not_held_ns_ = kNoStop;  // least bound of what was not held
  std::vector<int64_t> left_ns_;   // bounds of what the budget left
};

}  // namespace

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

}  // namespace entrain
