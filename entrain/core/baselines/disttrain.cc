// The policy `disttrain`: DistTrain's two reorderings of samples (arXiv 2408.04275), after our
// notes of it.
//
// 1. Replicas: samples by falling encoder work (all encoders together), each to the replica with
//    the least of it that has fewer than ⌈samples / replicas⌉.
// 2. Microbatches of four samples in drawn order, the last one of what is left. Their number
//    follows from the batch: the plan's num_slots is not used.
// 3. The order of the microbatches by interval_order(), on the chain of the stages of the encoder
//    with the most work, then of the LLM.
//
// Its plan, too, is its own: planner/single_sample_plan.h.
#include <algorithm>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/baselines/interval_order.h"
#include "entrain/core/baselines/lpt.h"
#include "entrain/core/baselines/module_work.h"
#include "entrain/core/baselines/policies.h"

namespace entrain {
namespace {

constexpr int kMicrobatch = 4;

// [replica] samples in drawn order.
std::vector<std::vector<int>> deal(const AssignRequest& request) {
  const std::vector<std::int64_t> work = module_work(*request.costs).encoder;
  const int replicas = request.plan->replicas;
  const int most = (request.costs->num_samples + replicas - 1) / replicas;
  std::vector<std::vector<int>> result(at(replicas));
  LeastLoaded bins(replicas);
  for (const int sample : falling(work)) {
    const int replica = bins.least();
    bins.add(replica, work[at(sample)]);
    if (bins.members(replica) == most) {
      bins.close(replica);
    }
    result[at(replica)].push_back(sample);
  }
  for (std::vector<int>& samples : result) {
    std::sort(samples.begin(), samples.end());
  }
  return result;
}

// The encoder with the most forward work; the LLM if there is none.
int heaviest_encoder(const StepCosts& costs) {
  int best = costs.llm_module();
  std::int64_t most = 0;
  for (int module = 0; module < costs.llm_module(); ++module) {
    std::int64_t total = 0;
    for (const std::int64_t unit : forward_times(costs, module)) {
      total += unit;
    }
    if (total > most) {
      most = total;
      best = module;
    }
  }
  return best;
}

// Adds the stages of one module to the chain; a microbatch's launches are left out.
void append_stages(const StepCosts& costs,
                   int module,
                   const std::vector<std::vector<int>>& microbatches,
                   ChainTimes& chain) {
  const ModuleCosts& of_module = costs.modules[at(module)];
  for (const StageCosts& stage : of_module.stages) {
    std::vector<std::int64_t>& forward = chain.forward.emplace_back(microbatches.size(), 0);
    std::vector<std::int64_t>& backward = chain.backward.emplace_back(microbatches.size(), 0);
    for (std::size_t i = 0; i < microbatches.size(); ++i) {
      for (const int sample : microbatches[i]) {
        for (int unit = of_module.first_unit[at(sample)];
             unit < of_module.first_unit[at(sample + 1)];
             ++unit) {
          forward[i] += stage.units[at(unit)].time.forward.count();
          backward[i] += stage.units[at(unit)].time.backward().count();
        }
      }
    }
  }
}

std::vector<std::vector<int>> microbatches_of(const std::vector<int>& samples) {
  std::vector<std::vector<int>> result;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (i % kMicrobatch == 0) {
      result.emplace_back();
    }
    result.back().push_back(samples[i]);
  }
  return result;
}

}  // namespace

Placement disttrain_policy(const AssignRequest& request) {
  const StepCosts& costs = *request.costs;
  Placement placement = empty_placement(costs, request.plan->replicas, 1);
  placement.samples = deal(request);
  const int encoder = heaviest_encoder(costs);
  for (std::size_t replica = 0; replica < placement.samples.size(); ++replica) {
    const std::vector<std::vector<int>> microbatches = microbatches_of(placement.samples[replica]);
    ChainTimes chain;
    if (encoder != costs.llm_module()) {
      append_stages(costs, encoder, microbatches, chain);
    }
    append_stages(costs, costs.llm_module(), microbatches, chain);
    const std::vector<int> order = interval_order(chain);
    for (std::size_t slot = 0; slot < order.size(); ++slot) {
      for (const int sample : microbatches[at(order[slot])]) {
        place_sample(costs, sample, static_cast<int>(slot), placement);
      }
    }
    placement.num_slots[replica] = static_cast<int>(order.size());
  }
  return placement;
}

}  // namespace entrain
