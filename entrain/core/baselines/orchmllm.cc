// The policy `orchmllm`: OrchMLLM's balance across replicas (arXiv 2503.23830), as far as it can be
// had without an exchange between replicas; after our notes of it.
//
// OrchMLLM balances every phase (each encoder, then the LLM) for itself over the data-parallel
// ranks: a sample's images may be encoded on another replica than its LLM work, and an all-to-all
// carries the features. Here a sample is in one replica, so that one placement has to serve all
// phases: samples by falling sum of their shares of each phase's whole work, each to the replica
// with the least sum so far. Among replicas within 1/1000 of the mean load of the least, the one
// with the least quadratic part wins (Σ tokens², each phase again as a share of its whole), which
// is OrchMLLM's rule for phases with attention. Inside a replica OrchMLLM does nothing: slots are
// even runs in drawn order, as with `sequential`.
//
// What it therefore cannot do: balance phases that disagree (a replica with much vision and little
// LLM work counts as fair), which the original can. It needs no exchange of features, which the
// original pays for.
#include <algorithm>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/baselines/lpt.h"
#include "entrain/core/baselines/policies.h"

namespace entrain {
namespace {

constexpr std::int64_t kWhole = 1'000'000'000'000;  // a phase's total work

// Adds each sample's share of the total of `values`, in units of 1 / kWhole.
void add_shares(const std::vector<std::int64_t>& values, std::vector<std::int64_t>& shares) {
  double total = 0;
  for (const std::int64_t value : values) {
    total += static_cast<double>(value);
  }
  for (std::size_t i = 0; i < values.size() && total > 0; ++i) {
    shares[i] += static_cast<std::int64_t>(static_cast<double>(values[i]) / total *
                                           static_cast<double>(kWhole));
  }
}

struct Shares {
  std::vector<std::int64_t> work;     // [sample] summed over phases
  std::vector<std::int64_t> squares;  // [sample] of tokens
};

Shares shares_of(const StepCosts& costs) {
  Shares result;
  result.work.assign(at(costs.num_samples), 0);
  result.squares.assign(at(costs.num_samples), 0);
  for (const ModuleCosts& module : costs.modules) {
    std::vector<std::int64_t> work(at(costs.num_samples), 0);
    std::vector<std::int64_t> squares(at(costs.num_samples), 0);
    for (std::size_t sample = 0; sample < work.size(); ++sample) {
      for (int unit = module.first_unit[sample]; unit < module.first_unit[sample + 1]; ++unit) {
        squares[sample] += module.tokens[at(unit)] * module.tokens[at(unit)];
        for (const StageCosts& stage : module.stages) {
          const OperationTimes& time = stage.units[at(unit)].time;
          work[sample] += (time.forward + time.backward()).count();
        }
      }
    }
    add_shares(work, result.work);
    add_shares(squares, result.squares);
  }
  return result;
}

// The least quadratic part of those near the least work; then the fewest samples, then the first.
int choose_replica(const LeastLoaded& work, const LeastLoaded& squares, int replicas) {
  std::int64_t mean = 0;
  for (int replica = 0; replica < replicas; ++replica) {
    mean += work.work(replica) / replicas;
  }
  const std::int64_t limit = work.work(work.least()) + mean / 1000;
  int best = -1;
  for (int replica = 0; replica < replicas; ++replica) {
    if (work.work(replica) > limit) {
      continue;
    }
    if (best < 0 || squares.work(replica) < squares.work(best) ||
        (squares.work(replica) == squares.work(best) &&
         work.members(replica) < work.members(best))) {
      best = replica;
    }
  }
  return best;
}

}  // namespace

Placement orchmllm_policy(const AssignRequest& request) {
  const StepCosts& costs = *request.costs;
  const int replicas = request.plan->replicas;
  Placement placement = empty_placement(costs, replicas, request.plan->num_slots);
  const Shares shares = shares_of(costs);
  LeastLoaded work(replicas);
  LeastLoaded squares(replicas);
  for (const int sample : falling(shares.work)) {
    const int replica = choose_replica(work, squares, replicas);
    work.add(replica, shares.work[at(sample)]);
    squares.add(replica, shares.squares[at(sample)]);
    placement.samples[at(replica)].push_back(sample);
  }
  for (int replica = 0; replica < replicas; ++replica) {
    std::vector<int>& samples = placement.samples[at(replica)];
    std::sort(samples.begin(), samples.end());
    place_in_even_runs(costs, replica, request.plan->num_slots, placement);
  }
  return placement;
}

}  // namespace entrain
