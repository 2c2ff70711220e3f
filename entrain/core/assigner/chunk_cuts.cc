#include "entrain/core/assigner/chunk_cuts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "entrain/core/assigner/construction.h"
#include "entrain/core/base/at.h"

namespace entrain {
namespace {

constexpr std::int64_t kFewestTokens = 8;  // of a sample that is cut

double llm_work(const BatchLoads& loads, int sample) {
  const auto& lanes = loads.llm[at(sample)];
  return std::accumulate(lanes.begin(), lanes.end(), 0.0);
}

// [sample] pieces of a replica's samples, none of which then exceeds `most`; 1: whole.
std::vector<int> pieces_of(const AssignRequest& request,
                           const BatchLoads& loads,
                           const Placement& placement,
                           int replica,
                           double most) {
  constexpr double kMostPieces = 16;
  const int max_deferral = request.plan->limits.max_deferral;
  std::vector<int> pieces(placement.llm_slot.size(), 1);
  for (const int sample : placement.samples[at(replica)]) {
    const std::int64_t tokens = request.costs->work[at(sample)].llm_tokens;
    if (!placement.chunks[at(sample)].empty() || tokens < kFewestTokens) {
      continue;
    }
    pieces[at(sample)] =
        static_cast<int>(std::clamp(std::ceil(llm_work(loads, sample) / most), 1.0, kMostPieces));
    if (max_deferral >= 0) {  // the segments are in the first chunk's slot
      pieces[at(sample)] = std::min(pieces[at(sample)], max_deferral + 1);
    }
  }
  return pieces;
}

// Slots are inserted after every slot with cut samples; whole samples stay in the first of them.
void insert_pieces(const AssignRequest& request,
                   const std::vector<int>& pieces,
                   int replica,
                   Placement& placement) {
  std::vector<int> more(at(placement.num_slots[at(replica)] + 1));
  for (const int sample : placement.samples[at(replica)]) {
    int& after = more[at(placement.llm_slot[at(sample)] + 1)];
    after = std::max(after, pieces[at(sample)] - 1);
  }
  std::partial_sum(more.begin(), more.end(), more.begin());
  const int max_deferral = request.plan->limits.max_deferral;
  for (const int sample : placement.samples[at(replica)]) {
    const int first = placement.llm_slot[at(sample)] + more[at(placement.llm_slot[at(sample)])];
    const bool cut = pieces[at(sample)] > 1;
    const int earliest = max_deferral < 0 ? 0 : first - (cut ? 0 : max_deferral);
    for (int module = 0; module < request.costs->llm_module(); ++module) {
      const std::vector<int>& units = request.costs->modules[at(module)].first_unit;
      for (int unit = units[at(sample)]; unit < units[at(sample + 1)]; ++unit) {
        int& slot = placement.encoder_slot[at(module)][at(unit)];
        slot = std::max(slot + more[at(slot)], earliest);
      }
    }
    placement.llm_slot[at(sample)] = first + pieces[at(sample)] - 1;
    for (ChunkPlace& chunk : placement.chunks[at(sample)]) {
      chunk.slot += more[at(chunk.slot)];
    }
    if (cut) {
      placement.chunks[at(sample)] =
          equal_chunks(*request.costs, sample, first, pieces[at(sample)]);
    }
  }
  placement.num_slots[at(replica)] += more.back();
}

void cut_all_above(const AssignRequest& request,
                   const BatchLoads& loads,
                   StepEvaluator& evaluator,
                   int replica,
                   Evaluated& best) {
  const Placement base = best.placement;
  double mean = 0;
  for (const int sample : base.samples[at(replica)]) {
    if (!base.chunks[at(sample)].empty() && request.plan->limits.max_deferral >= 0) {
      return;  // inserted slots would move its segments away from its chunks
    }
    mean += llm_work(loads, sample) / base.num_slots[at(replica)];
  }
  std::vector<int> before;
  for (const double share : {4.0, 2.5, 1.5, 1.0, 0.7}) {
    const std::vector<int> pieces = pieces_of(request, loads, base, replica, share * mean);
    const bool cuts =
        std::any_of(pieces.begin(), pieces.end(), [](int count) { return count > 1; });
    if (!cuts || pieces == before) {
      continue;
    }
    before = pieces;
    Placement tried = base;
    insert_pieces(request, pieces, replica, tried);
    const ReplicaTimes times = evaluator.evaluate(tried, replica);
    if (times.done && better(times, best.times[at(replica)])) {
      best.placement = std::move(tried);
      best.times[at(replica)] = times;
    }
  }
}

// The best of a few cuts of one sample, at several places; false when none is faster.
bool cut_sample(const AssignRequest& request,
                StepEvaluator& evaluator,
                int replica,
                int sample,
                Evaluated& best) {
  const int slot = best.placement.llm_slot[at(sample)];
  const int max_deferral = request.plan->limits.max_deferral;
  const ReplicaTimes before = best.times[at(replica)];
  const Placement base = best.placement;
  for (const int count : {2, 3, 4, 6, 8}) {
    for (const int back : {0, count / 2, count - 1}) {
      if (max_deferral >= 0 && count - 1 > max_deferral) {
        continue;  // the segments are in the first chunk's slot
      }
      Placement tried = base;
      int& num_slots = tried.num_slots[at(replica)];
      const int first = std::max(0, slot - back);
      num_slots = std::max(num_slots, first + count);
      place_sample(*request.costs, sample, first, tried);
      tried.llm_slot[at(sample)] = first + count - 1;
      tried.chunks[at(sample)] = equal_chunks(*request.costs, sample, first, count);
      const ReplicaTimes times = evaluator.evaluate(tried, replica);
      const bool allowed = times.fits() || !before.fits();
      if (times.done && allowed && slower_last(times, best.times[at(replica)])) {
        best.placement = std::move(tried);
        best.times[at(replica)] = times;
      }
    }
  }
  return slower_last(best.times[at(replica)], before);
}

// Cuts the heaviest sample of the slowest replica where its step gets faster, again and again.
void cut_one_by_one(const AssignRequest& request,
                    const BatchLoads& loads,
                    StepEvaluator& evaluator,
                    int budget,
                    Evaluated& best) {
  constexpr int kMostCuts = 16;
  for (int i = 0; i < kMostCuts && evaluator.evaluations() < budget; ++i) {
    const int replica = slowest_of(best.times);
    int heaviest = -1;
    for (const int sample : best.placement.samples[at(replica)]) {
      if (best.placement.chunks[at(sample)].empty() &&
          request.costs->work[at(sample)].llm_tokens >= kFewestTokens &&
          (heaviest < 0 || loads.llm[at(sample)] > loads.llm[at(heaviest)])) {
        heaviest = sample;
      }
    }
    if (heaviest < 0 || !cut_sample(request, evaluator, replica, heaviest, best)) {
      break;
    }
  }
}

}  // namespace

void cut_heavy_samples(const AssignRequest& request,
                       const BatchLoads& loads,
                       StepEvaluator& evaluator,
                       int budget,
                       bool all_at_once,
                       Evaluated& best) {
  for (int replica = 0; all_at_once && replica < request.plan->replicas; ++replica) {
    cut_all_above(request, loads, evaluator, replica, best);
  }
  cut_one_by_one(request, loads, evaluator, budget, best);
}

}  // namespace entrain
