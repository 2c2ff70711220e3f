#include "entrain/core/assigner/search.h"

#include <algorithm>
#include <utility>

#include "entrain/core/assigner/moves.h"
#include "entrain/core/base/digest.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// Σ (time / reference)²⁴ over the replicas.
double spread_of(const std::vector<ReplicaTimes>& times, double reference) {
  double sum = 0;
  for (const ReplicaTimes& replica : times) {
    const double ratio = static_cast<double>(replica.total_ns) / reference;
    const double cube = ratio * ratio * ratio;
    const double sixth = cube * cube;
    const double twelfth = sixth * sixth;
    sum += twelfth * twelfth;
  }
  return sum;
}

int slowest(const std::vector<ReplicaTimes>& times) {
  const auto latest = std::max_element(
      times.begin(), times.end(), [](const ReplicaTimes& a, const ReplicaTimes& b) {
        return a.total_ns < b.total_ns;
      });
  return static_cast<int>(latest - times.begin());
}

}  // namespace

Evaluated local_search(const AssignRequest& request,
                       const BatchLoads& loads,
                       std::int64_t bound_ns,
                       StepEvaluator& evaluator,
                       Evaluated start) {
  const int budget = request.plan->limits.evaluations;
  const int replicas = request.plan->replicas;
  Rng rng(request.seed, hash_of("assigner/entrain") + static_cast<std::uint64_t>(request.step));
  Mover mover(request, loads, rng);
  Evaluated best = start;
  Evaluated current = std::move(start);
  const auto reference = static_cast<double>(
      std::max<std::int64_t>(1, current.times[at(slowest(current.times))].total_ns));
  double norm = spread_of(current.times, reference);
  std::int64_t best_ns = evaluator.step_ns(best.times);
  // Draws that change nothing cost no evaluation; their number is bounded as well.
  for (int draw = 0; draw < 20 * budget && best_ns > bound_ns; ++draw) {
    if (evaluator.evaluations() + 2 > budget) {
      break;
    }
    const int replica = rng.below(5) < 3
                            ? slowest(current.times)
                            : static_cast<int>(rng.below(static_cast<std::uint64_t>(replicas)));
    Evaluated candidate = current;
    const std::vector<int> changed = mover.move(replica, candidate.placement);
    bool fits = !changed.empty();
    for (const int r : changed) {
      candidate.times[at(r)] =
          evaluator.evaluate(to_assignment(*request.costs, candidate.placement, r));
      fits = fits && evaluator.fits(candidate.times[at(r)]);
    }
    if (!fits) {
      continue;
    }
    const double candidate_norm = spread_of(candidate.times, reference);
    if (candidate_norm <= norm) {
      current = std::move(candidate);
      norm = candidate_norm;
      const std::int64_t step_ns = evaluator.step_ns(current.times);
      if (step_ns < best_ns) {
        best = current;
        best_ns = step_ns;
      }
    }
  }
  return best;
}

}  // namespace entrain
