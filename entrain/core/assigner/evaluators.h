// Several evaluators of one request, so that threads can work on different replicas.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <numeric>
#include <vector>

#include "entrain/core/assigner/evaluate.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/parallel.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// The number of evaluators, and of the groups of replicas that are searched beside each other,
// depends on the plan alone: results are the same for any number of threads.
class StepEvaluators {
 public:
  // `plan` and `costs` must outlive it. Requires  threads >= 1.
  StepEvaluators(const Plan& plan, const StepCosts& costs, int threads)
      : num_replicas_(plan.replicas), threads_(threads) {
    constexpr int kMost = 8;
    const int count = std::clamp(plan.replicas / 2, 1, kMost);
    all_.emplace_back(plan, costs);
    while (size() < count) {
      all_.emplace_back(plan, costs, all_.front());
    }
  }

  [[nodiscard]] int size() const { return static_cast<int>(all_.size()); }
  StepEvaluator& operator[](int number) { return all_[at(number)]; }
  // The one of a replica outside the search: that of number replica % size().
  StepEvaluator& of(int replica) { return all_[at(replica % size())]; }

  // Those of an evaluator, by of().
  [[nodiscard]] std::vector<int> replicas_of(int number) const {
    std::vector<int> replicas;
    for (int replica = number; replica < num_replicas_; replica += size()) {
      replicas.push_back(replica);
    }
    return replicas;
  }

  // work(0) … work(size() - 1) beside each other, each of which may use its own evaluator.
  void for_each(const std::function<void(int)>& work) {
    parallel_for(size(), threads_, [&](std::int64_t number) { work(static_cast<int>(number)); });
  }

  // Sums over all: see StepEvaluator.
  [[nodiscard]] int evaluations() const { return sum(&StepEvaluator::evaluations); }
  [[nodiscard]] int usual_simulations() const { return sum(&StepEvaluator::usual_simulations); }

 private:
  [[nodiscard]] int sum(int (StepEvaluator::*count)() const) const {
    return std::accumulate(all_.begin(), all_.end(), 0, [&](int total, const StepEvaluator& of) {
      return total + (of.*count)();
    });
  }

  int num_replicas_;
  int threads_;
  std::deque<StepEvaluator> all_;
};

}  // namespace entrain
