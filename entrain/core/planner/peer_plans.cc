#include "entrain/core/planner/peer_plans.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/planner/memory_reason.h"
#include "entrain/core/planner/plan_scorer.h"

namespace entrain {
namespace {

constexpr int kNearPercent = 10;  // of the least time: fewer slots are preferred

PlanSearchRequest without_extras(PlanSearchRequest request, SharedLanes shared_lanes) {
  request.recompute = RecomputeRule::kNever;
  request.space.shared_lanes = shared_lanes;
  request.space.virtual_stages = 1;
  return request;
}

class PeerPlanner {
 public:
  explicit PeerPlanner(const PlanSearchRequest& request) : request_(request), scorer_(request) {}

  [[nodiscard]] const std::vector<int>& replica_counts() const {
    return scorer_.space().replica_counts();
  }

  // Without context parallelism, where no module alone exceeds memory.
  void for_each(int replicas, const PlanSpace::Visit& visit) const {
    const PlanSpace& space = scorer_.space();
    const PlanSpace::Filter wanted = [&](int module, int index, int stages) {
      return space.degrees()[at(module)][at(index)].context_parallel == 1 &&
             scorer_.bounds().module_bound(replicas, module, index, stages).cause !=
                 BoundCause::kMemory;
    };
    space.for_each(replicas, wanted, visit);
  }

  [[nodiscard]] std::int64_t formula_ns(const PlanShape& config) const {
    const PlanBounds& bounds = scorer_.bounds();
    const std::vector<std::int64_t> slots = bounds.lane_slot_ns(config, bounds.cut(config));
    return (config.num_slots + lanes_of(config) - 1) *
           *std::max_element(slots.begin(), slots.end());
  }

  // Whether it fits; then it is `best`.
  bool take(const PlanShape& config, std::int64_t formula_ns, FormulaPlan& best) {
    PlanCandidate candidate = scorer_.make_candidate(config);
    if (candidate.state == CandidateState::kNoFit) {
      no_fit_.push_back(std::move(candidate));
      return false;
    }
    best = {std::move(candidate.plan), config, formula_ns, ""};
    return true;
  }

  [[nodiscard]] FormulaPlan nothing() const {
    FormulaPlan none;
    none.reason = memory_reason(scorer_, request_, no_fit_);
    return none;
  }

 private:
  const PlanSearchRequest& request_;
  PlanScorer scorer_;
  std::vector<PlanCandidate> no_fit_;
};

}  // namespace

FormulaPlan dflop_plan(const PlanSearchRequest& request) {
  const PlanSearchRequest own = without_extras(request, SharedLanes::kNever);
  PeerPlanner planner(own);
  std::map<int, FormulaPlan> best;  // by slots
  for (const int replicas : planner.replica_counts()) {
    planner.for_each(replicas, [&](const PlanShape& config) {
      if (config.layout != ModuleLayout::kOwnLanes) {
        return;
      }
      const std::int64_t time = planner.formula_ns(config);
      const auto known = best.find(config.num_slots);
      if (known == best.end() || time < known->second.formula_ns) {
        FormulaPlan better;
        if (planner.take(config, time, better)) {
          best[config.num_slots] = std::move(better);
        }
      }
    });
  }
  if (best.empty()) {
    return planner.nothing();
  }
  const std::int64_t least =
      std::min_element(best.begin(), best.end(), [](const auto& a, const auto& b) {
        return a.second.formula_ns < b.second.formula_ns;
      })->second.formula_ns;
  return std::find_if(best.begin(),
                      best.end(),
                      [least](const auto& of) {
                        return of.second.formula_ns * 100 <= least * (100 + kNearPercent);
                      })
      ->second;
}

FormulaPlan orchmllm_plan(const PlanSearchRequest& request) {
  const bool several = request.model->num_modules() > 1;
  const PlanSearchRequest shared =
      without_extras(request, several ? SharedLanes::kOnly : SharedLanes::kNever);
  PeerPlanner planner(shared);
  std::vector<int> replica_counts = planner.replica_counts();
  std::sort(replica_counts.rbegin(), replica_counts.rend());
  for (const int replicas : replica_counts) {
    FormulaPlan best;
    planner.for_each(replicas, [&](const PlanShape& config) {
      const std::int64_t time = planner.formula_ns(config);
      if (best.plan.modules.empty() ||
          std::make_tuple(lanes_of(config), time) <
              std::make_tuple(lanes_of(best.config), best.formula_ns)) {
        planner.take(config, time, best);
      }
    });
    if (!best.plan.modules.empty()) {
      return best;
    }
  }
  return planner.nothing();
}

}  // namespace entrain
