#include "entrain/core/planner/plan_search.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
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
};

using Undecided = std::pair<std::size_t, PlanCandidate>;  // index of its entry

bool lower_bound_first(const Entry& a, const Entry& b) {
  return std::pair(a.bound_ns, a.number) < std::pair(b.bound_ns, b.number);
}

class Search {
 public:
  Search(const PlanSearchRequest& request, PlanScorer& scorer)
      : request_(request), scorer_(scorer) {}

  PlanSearchResult run() {
    list_entries();
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.estimate_ns, a.number) < std::pair(b.estimate_ns, b.number);
    });
    for (std::size_t index = 0; index < entries_.size(); ++index) {
      judge_once(index);
      while (improved_) {
        improved_ = false;
        for (const std::size_t near : near_best()) {
          judge_once(near);
        }
      }
    }
    judge_set_aside();
    judge_stopped();
    finish();
    return std::move(result_);
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
        least = std::min(least, bound.ns);
        keep({bound.ns, 0, number++, config});
      });
    }
    for (Entry& entry : entries_) {
      entry.estimate_ns = bounds.estimate(entry.config);
    }
    result_.lower_bound_ns = least == kNever ? 0 : least / num_batches();
  }

  [[nodiscard]] int64_t num_batches() const { return scorer_.num_batches(); }

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
    return last == nullptr ? kNever : total_ns(*last);
  }

  [[nodiscard]] bool spent() const {
    const int steps = scorer_.simulated_steps();
    if (request_.most_simulations >= 0) {
      return request_.most_simulations > 0 && steps >= request_.most_simulations;
    }
    return steps >= default_budget(request_.patience) ||
           (steps >= kLeastSimulations &&
            scorer_.simulated_unit_stages() >= request_.patience * kMostUnitStages);
  }

  // Those that differ from the best plan in the shape of one module or in where lanes went, as the
  // order of entries has them: only what comes first under a budget hangs on it.
  [[nodiscard]] std::vector<std::size_t> near_best() const {
    constexpr std::size_t kMost = 4;
    const PlanShape& best = result_.best().config;
    std::vector<std::size_t> result;
    for (std::size_t index = 0; index < entries_.size() && result.size() < kMost; ++index) {
      const PlanShape& other = entries_[index].config;
      if (judged_[index] != 0 || other.replicas != best.replicas || other.layout != best.layout) {
        continue;
      }
      int shapes = 0;
      int degrees = 0;
      for (std::size_t module = 0; module < best.modules.size(); ++module) {
        shapes += other.modules[module] == best.modules[module] ? 0 : 1;
        degrees += other.modules[module].degrees == best.modules[module].degrees ? 0 : 1;
      }
      if (shapes <= 1 || degrees == 0) {
        result.push_back(index);
      }
    }
    return result;
  }

  void judge_once(std::size_t index) {
    judged_.resize(entries_.size(), 0);
    if (judged_[index] == 0) {
      judged_[index] = 1;
      judge(entries_[index]);
    }
  }

  void judge(const Entry& entry) {
    if (entry.bound_ns >= threshold()) {
      return;
    }
    if (spent() && !result_.plans.empty()) {
      leave_entry(entry.bound_ns);
      return;
    }
    take(scorer_.score(entry.config, threshold(), rival()), entry);
  }

  // What others are set aside by, once there is a threshold. Where the search may well be complete
  // within its budget, that is the plan that makes the threshold, so that it becomes as low as it
  // can be and bounds cut the most; otherwise the best one, so that more plans are tried.
  [[nodiscard]] std::span<const int64_t> rival() const {
    const PlanCandidate* last = last_of_first();
    if (last == nullptr) {
      return {};
    }
    const int budget = request_.most_simulations < 0 ? default_budget(request_.patience)
                                                     : request_.most_simulations;
    const bool may_be_complete = budget == 0 || std::ssize(entries_) <= 2 * std::int64_t{budget};
    return may_be_complete ? last->steps : result_.best().steps;
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
      } else if (spent()) {
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
      const std::vector<int64_t>& best = result_.best().steps;
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

  void leave_entry(int64_t bound_ns) {
    ++result_.left;
    left_ns_ = std::min(left_ns_, bound_ns);
  }

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

  void finish() {
    result_.simulated_steps = scorer_.simulated_steps();
    std::stable_sort(
        result_.stopped.begin(),
        result_.stopped.end(),
        [](const PlanCandidate& a, const PlanCandidate& b) { return a.mean_ns < b.mean_ns; });
    summarise_cuts();
    if (not_held_ns_ < threshold()) {
      left_ns_ = std::min(left_ns_, not_held_ns_);
      ++result_.left;
    }
    result_.complete = left_ns_ == kNever;
    result_.left_bound_ns = result_.complete ? 0 : left_ns_ / num_batches();
    if (!result_.fits()) {
      result_.reason = memory_reason(scorer_, request_, result_.no_fit);
      return;
    }
    result_.dynamic_regret = regret();
    PlanCandidate& best = result_.plans.front();
    PlanCertificate& certificate = best.plan.certificate;
    certificate.simulated_s = static_cast<double>(best.mean_ns) * 1e-9;
    certificate.lower_bound_s = static_cast<double>(result_.lower_bound_ns) * 1e-9;
    certificate.ratio =
        result_.lower_bound_ns > 0 ? certificate.simulated_s / certificate.lower_bound_s : 0;
    certificate.dynamic_regret = result_.dynamic_regret;
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
  void summarise_cuts() {
    const int64_t best = threshold();
    const PlanSpace& space = scorer_.space();
    for (const int replicas : space.replica_counts()) {
      for_each_shape(replicas, [&](int module, int index, int stages) {
        ++result_.shapes;
        const PlanBound bound = scorer_.bounds().module_bound(replicas, module, index, stages);
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
        const PlanBound bound = scorer_.bounds().module_bound(replicas, module, index, stages);
        return bound.cause != BoundCause::kMemory && bound.ns < best;
      };
      space.for_each(replicas, filter, [&](const PlanShape& config) {
        ++result_.configurations;
        const PlanBound bound = scorer_.bounds().bound(config);
        const bool memory = bound.cause == BoundCause::kMemory;
        if (memory || bound.ns >= best) {
          count_cut(summary(bound.cause, memory ? bound.module : -1), bound.ns, [&] {
            return describe(config, *request_.model);
          });
        }
      });
    }
  }

  void for_each_shape(int replicas, const std::function<void(int, int, int)>& visit) const {
    const PlanSpace& space = scorer_.space();
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
  PlanScorer& scorer_;
  PlanSearchResult result_;
  std::vector<Entry> entries_;
  std::vector<char> judged_;                       // [entry]
  bool improved_ = false;                          // the best plan, since last asked
  std::vector<std::pair<int64_t, int64_t>> keys_;  // [plan of the result] total and number
  std::vector<Undecided> undecided_;               // stopped, unknown whether they fit
  std::vector<Undecided> set_aside_;
  int64_t not_held_ns_ = kNever;  // least bound of what was not held
  int64_t left_ns_ = kNever;      // least bound of what the budget left
};

}  // namespace

PlanSearchResult search_plans(const PlanSearchRequest& request) {
  PlanScorer scorer(request);
  PlanSearchResult result = Search(request, scorer).run();
  // Every turn knows one more batch that breaks plans.
  while (result.fits() && request.further.count() > 0) {
    PlanCandidate best = result.best();
    const FurtherMiss found = scorer.check_all(best);
    if (found.fits()) {
      result.further_batches = found.batches;
      result.plans.front().plan.certificate.further_batches = found.batches;
      break;
    }
    scorer.start_again();
    result = Search(request, scorer).run();
  }
  return result;
}

}  // namespace entrain
