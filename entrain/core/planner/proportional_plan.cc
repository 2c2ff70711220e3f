#include "entrain/core/planner/proportional_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "entrain/core/planner/memory_reason.h"
#include "entrain/core/planner/plan_scorer.h"

namespace entrain {
namespace {

class Proportional {
 public:
  explicit Proportional(const PlanSearchRequest& request) : request_(request), scorer_(request) {
    for (int module = 0; module < request.model->num_modules(); ++module) {
      work_.push_back(static_cast<double>(scorer_.bounds().device_work_ns(module)));
    }
  }

  FormulaPlan run() {
    const auto samples = static_cast<std::int64_t>(request_.batches.front().size());
    const int microbatch = request_.space.microbatches.front();
    bool divides = false;
    for (const int replicas : scorer_.space().replica_counts()) {
      if (samples % (std::int64_t{replicas} * microbatch) == 0) {
        divides = true;
        try_replicas(replicas);
      }
    }
    if (!divides) {
      result_.reason = fmt::format(
          "a global batch of {} samples is no multiple of replicas × {}, the "
          "microbatch, for any number of replicas allowed",
          samples,
          microbatch);
    } else if (result_.plan.modules.empty()) {
      result_.reason = memory_reason(scorer_, request_, {});
    }
    return std::move(result_);
  }

 private:
  // Sum over modules of |devices - exact share|.
  [[nodiscard]] double distance(const PlanShape& config) const {
    const double all = std::accumulate(work_.begin(), work_.end(), 0.0);
    const double devices = devices_per_replica(config);
    double sum = 0;
    for (std::size_t module = 0; module < work_.size(); ++module) {
      const ModuleShape& shape = config.modules[module];
      const double exact = all > 0 ? work_[module] / all * devices : 0;
      sum += std::abs(shape.degrees.devices() * shape.stages - exact);
    }
    return sum;
  }

  void try_replicas(int replicas) {
    const PlanBounds& bounds = scorer_.bounds();
    const PlanSpace::Filter in_memory = [&](int module, int index, int stages) {
      return bounds.module_bound(replicas, module, index, stages).cause != BoundCause::kMemory;
    };
    double least = std::numeric_limits<double>::max();
    const auto for_each_own = [&](const PlanSpace::Visit& visit) {
      scorer_.space().for_each(replicas, in_memory, [&](const PlanShape& config) {
        if (config.layout == ModuleLayout::kOwnLanes) {
          visit(config);
        }
      });
    };
    for_each_own([&](const PlanShape& config) { least = std::min(least, distance(config)); });
    for_each_own([&](const PlanShape& config) {
      if (distance(config) == least) {
        weigh(config);
      }
    });
  }

  void weigh(const PlanShape& config) {
    const std::vector<std::int64_t> slots =
        scorer_.bounds().lane_slot_ns(config, scorer_.bounds().cut(config));
    const std::int64_t time =
        std::accumulate(slots.begin(), slots.end(), std::int64_t{0}) +
        (config.num_slots - 1) * *std::max_element(slots.begin(), slots.end());
    if (!result_.plan.modules.empty() && time >= result_.formula_ns) {
      return;
    }
    PlanCandidate candidate = scorer_.make_candidate(config);
    if (candidate.state != CandidateState::kNoFit) {
      result_ = {std::move(candidate.plan), config, time, ""};
    }
  }

  const PlanSearchRequest& request_;
  PlanScorer scorer_;
  std::vector<double> work_;  // [module]
  FormulaPlan result_;
};

}  // namespace

FormulaPlan proportional_plan(const PlanSearchRequest& request) {
  PlanSearchRequest without = request;
  without.recompute = RecomputeRule::kNever;
  return Proportional(without).run();
}

}  // namespace entrain
