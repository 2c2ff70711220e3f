#include "entrain/core/planner/plan_search.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/text.h"
#include "entrain/core/planner/memory_reason.h"
#include "entrain/core/planner/part_search.h"
#include "entrain/core/planner/plan_scorer.h"

namespace entrain {
namespace {

using std::int64_t;

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
    return result_.plans.size() <= last ? kNoStop : total_ns(result_.plans[last]);
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
                "{} of {}", counted(replicas, "replica"), describe(shape, *request_.model, module));
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
  int64_t best_ns_ = kNoStop;
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
