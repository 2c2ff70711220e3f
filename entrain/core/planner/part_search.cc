#include "entrain/core/planner/part_search.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "entrain/core/base/parallel.h"

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
// stages (plan_units.h), the first of each other number of replicas that counts no more, and all of
// one lane. Estimates favour few replicas of many lanes, which deal worst with uneven samples.
constexpr int64_t kMostGuesses = 64;
constexpr int64_t kMostGuessUnits = 700'000;

// A part with kSharedLanes is searched after the same part without, in an eighth of its budget.
// Where that part is not proven, an eighth of its units are guessed, two to four configurations,
// four to eight from 2,048 samples on, and only those guessed less than 6 % slower than the first
// plan that fitted there are simulated: other levels of recomputation than the guessed one may win
// a tenth. The guess is by the policy itself, since `lpt-2d` can take 1.8 times as long on
// pipelines of a few heavy samples and no longer on one lane.
constexpr int kSharedShare = 8;
constexpr int64_t kLeastSharedGuesses = 2;
constexpr int64_t kMostSharedGuesses = 4;

// Among so many configurations steps of plans far behind are given up, if there is a budget: it
// proves nothing of most of them anyway. Of fewer, whole steps may prove that they are slower.
constexpr std::size_t kMostWithoutGivingUp = 250;

using Undecided = std::pair<std::size_t, PlanCandidate>;  // index of its entry

bool lower_bound_first(const Entry& a, const Entry& b) {
  return std::pair(a.bound_ns, a.number) < std::pair(b.bound_ns, b.number);
}

// One replica is one lane, as in plain data parallelism with or without tensor parallelism.
bool is_one_lane(const Entry& entry) {
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
      judge_once(index);
      walks_ = true;
      while (improved_ && beside_ == nullptr) {
        improved_ = false;
        for (const std::size_t near : near_best()) {
          judge_once(near);
          if (improved_) {
            break;
          }
        }
      }
      walks_ = false;
    }
    judge_set_aside();
    judge_stopped();
    if (not_held_ns_ < kNever) {
      left_ns_.push_back(not_held_ns_);
    }
    result_.simulated_steps = scorer_.simulated_steps();
    figures_.threshold_ns = threshold();
    figures_.fits = !result_.plans.empty();
    figures_.best_ns = figures_.fits ? total_ns(result_.best()) : kNever;
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
    const auto end = std::stable_partition(
        entries_.begin(), entries_.end(), [guessed = guessed_numbers()](const Entry& entry) {
          return guessed.count(entry.number) > 0;
        });
    parallel_for(end - entries_.begin(), request_.threads, [&](int64_t index) {
      Entry& entry = entries_[static_cast<std::size_t>(index)];
      entry.guess_ns = scorer_.guess(entry.config, is_guided(), far_guess_ns());
    });
    std::stable_sort(entries_.begin(), end, [](const Entry& a, const Entry& b) {
      return a.guess_ns < b.guess_ns;
    });
    const auto second = entries_.begin() + (entries_.empty() ? 0 : 1);
    return static_cast<std::size_t>(std::stable_partition(second, end, is_one_lane) -
                                    entries_.begin());
  }

  // Of the entries, which are in the order of their estimates.
  [[nodiscard]] std::set<int64_t> guessed_numbers() const {
    std::set<int64_t> result;
    std::set<int> replica_counts;
    int64_t units = 0;
    const int64_t shared = std::min<int64_t>(2, size_scale());
    const int64_t most = is_guided() ? shared * kMostSharedGuesses : kMostGuesses;
    const int64_t most_units = size_scale() * kMostGuessUnits / (is_guided() ? kSharedShare : 1);
    const int64_t least = is_guided() ? shared * kLeastSharedGuesses : 0;
    bool by_estimate = true;
    for (const Entry& entry : entries_) {
      const auto count = std::ssize(result);
      by_estimate = by_estimate && count < most && (units < most_units || count < least);
      const bool another = !is_guided() && replica_counts.count(entry.config.replicas) == 0;
      if (!by_estimate && !another && !is_one_lane(entry)) {
        continue;
      }
      const int64_t more = scorer_.guess_units(entry.config);
      if (by_estimate || more <= most_units || is_one_lane(entry)) {
        units += more;
        replica_counts.insert(entry.config.replicas);
        result.insert(entry.number);
      }
    }
    return result;
  }

  // Larger batches may take more: 2 times from 2,048 samples on, 4 times from 8,192.
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
                                                        : kNever;
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
    const int percent = walks_ ? kWalkPercent : 100;
    return 100 * steps >= percent * default_budget(request_.patience) ||
           (steps >= kLeastSimulations &&
            100 * share * scorer_.simulated_unit_stages() >=
                percent * std::max<int64_t>(request_.patience, size_scale()) * kMostUnitStages);
  }

  // Those that differ from the best plan in the replicas, the shape of one module or in where lanes
  // went: what is scaled from it or goes on twice as far from the best plan before it, then the
  // nearest in lanes, then as the order of entries has them. Only what comes first under a budget
  // hangs on it.
  [[nodiscard]] std::vector<std::size_t> near_best() const {
    constexpr std::size_t kMost = 4;
    const PlanShape& best = result_.best().config;
    std::vector<std::pair<int, std::size_t>> similar;  // lanes that went, and index
    for (std::size_t index = 0; index < entries_.size(); ++index) {
      const PlanShape& other = entries_[index].config;
      if (judged_[index] != 0 || other.layout != best.layout) {
        continue;
      }
      if (is_scaled(other)) {
        similar.emplace_back(0, index);
      }
      if (other.replicas != best.replicas) {
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
        similar.emplace_back(goes_on(other) ? 0 : lanes, index);
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

  // Whether lanes go on from the best plan as they went to it, twice as many.
  [[nodiscard]] bool goes_on(const PlanShape& other) const {
    PlanShape on = result_.best().config;
    if (before_.modules.empty() || before_.replicas != on.replicas || before_.layout != on.layout) {
      return false;
    }
    for (std::size_t module = 0; module < on.modules.size(); ++module) {
      on.modules[module].stages += 2 * (on.modules[module].stages - before_.modules[module].stages);
    }
    return on == other;
  }

  // Whether it has twice the replicas of the best plan, of half the lanes each, or the reverse.
  [[nodiscard]] bool is_scaled(const PlanShape& other) const {
    const PlanShape& best = result_.best().config;
    if (other.replicas != 2 * best.replicas && 2 * other.replicas != best.replicas) {
      return false;
    }
    for (std::size_t module = 0; module < best.modules.size(); ++module) {
      const ModuleShape& mine = best.modules[module];
      const ModuleShape& its = other.modules[module];
      if (its.stages * other.replicas != mine.stages * best.replicas ||
          !(its.degrees == mine.degrees) || its.virtual_stages != mine.virtual_stages) {
        return false;
      }
    }
    return true;
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
    const int64_t own = result_.plans.empty() ? kNever : total_ns(result_.best());
    scorer_.set_lead(beside_ == nullptr ? own : std::min(own, beside_->best_ns));
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
  bool walks_ = false;                             // along what is near the best plan
  PlanShape before_;                               // that was the best before it
  std::vector<std::pair<int64_t, int64_t>> keys_;  // [plan of the result] total and number
  std::vector<Undecided> undecided_;               // stopped, unknown whether they fit
  std::vector<Undecided> set_aside_;
  int64_t not_held_ns_ = kNever;  // least bound of what was not held
  std::vector<int64_t> left_ns_;  // bounds of what the budget left
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
