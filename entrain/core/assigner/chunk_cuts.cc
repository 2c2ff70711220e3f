#include "entrain/core/assigner/chunk_cuts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "entrain/core/assigner/moves.h"
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
  constexpr std::int64_t kMostPieces = 16;
  const int max_deferral = request.plan->limits.max_deferral;
  std::vector<int> pieces(placement.llm_slot.size(), 1);
  for (const int sample : placement.samples[at(replica)]) {
    const std::int64_t tokens = request.costs->work[at(sample)].llm_tokens;
    if (!placement.chunks[at(sample)].empty() || tokens < kFewestTokens) {
      continue;
    }
    const double most_pieces = static_cast<double>(std::min(kMostPieces, tokens));
    pieces[at(sample)] =
        static_cast<int>(std::clamp(std::ceil(llm_work(loads, sample) / most), 1.0, most_pieces));
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

// LLM work of half a slot of the plan's number: the largest slot that samples are cut by, since a
// replica of few large samples has few slots.
double largest_slot(const AssignRequest& request, const BatchLoads& loads) {
  double all = 0;
  for (int sample = 0; sample < request.costs->num_samples; ++sample) {
    all += llm_work(loads, sample);
  }
  return all / request.plan->replicas / request.plan->num_slots / 2;
}

// By shares of a mean slot, of at most `most`.
void cut_all_above(const AssignRequest& request,
                   const BatchLoads& loads,
                   StepEvaluator& evaluator,
                   int replica,
                   double most,
                   Evaluated& best) {
  const Placement base = best.placement;
  double mean = 0;
  for (const int sample : base.samples[at(replica)]) {
    if (!base.chunks[at(sample)].empty() && request.plan->limits.max_deferral >= 0) {
      return;  // inserted slots would move its segments away from its chunks
    }
    mean += llm_work(loads, sample) / base.num_slots[at(replica)];
  }
  mean = std::min(mean, most);
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

// The best of a few cuts of one sample, at several places; false when none is faster. A sample that
// is alone in its replica waits for nothing but itself: it is cut into more than kMostPieces, too,
// as long as more of them are faster.
bool cut_sample(const AssignRequest& request,
                StepEvaluator& evaluator,
                int replica,
                int sample,
                Evaluated& best) {
  const int slot = best.placement.llm_slot[at(sample)];
  const int max_deferral = request.plan->limits.max_deferral;
  const ReplicaTimes before = best.times[at(replica)];
  const Placement base = best.placement;
  const std::int64_t tokens = request.costs->work[at(sample)].llm_tokens;
  const bool alone = base.samples[at(replica)].size() == 1;
  constexpr int kMostPieces = 8;
  bool faster = true;
  for (const int count : {2, 3, 4, 6, 8, 12, 16, 24, 32}) {
    if (count > tokens || (count > kMostPieces && !(alone && faster))) {
      break;
    }
    faster = false;
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
        faster = true;
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

// Whole samples of `wanted` work at most go to another replica, the largest first, to where they
// stood between its first and last slot. Whether any did.
bool move_whole(const AssignRequest& request,
                const BatchLoads& loads,
                int from,
                int to,
                double wanted,
                Placement& placement) {
  std::vector<int> order = placement.samples[at(from)];
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return loads.normalised[at(a)] > loads.normalised[at(b)];
  });
  std::vector<int> stay;
  for (const int sample : order) {
    const auto size = static_cast<double>(loads.normalised[at(sample)]);
    if (size > wanted || !placement.chunks[at(sample)].empty()) {
      stay.push_back(sample);
      continue;
    }
    wanted -= size;
    placement.samples[at(to)].push_back(sample);
    const int slot = scaled_slot(
        placement.llm_slot[at(sample)], placement.num_slots[at(from)], placement.num_slots[at(to)]);
    place_sample(*request.costs, sample, slot, placement);
  }
  const bool moved = stay.size() < order.size() && !stay.empty();
  placement.samples[at(from)] = std::move(stay);
  return moved;
}

// A replica whose samples are cut is faster than when work was dealt: it takes whole samples of
// others.
void even_out(const AssignRequest& request,
              const BatchLoads& loads,
              StepEvaluator& evaluator,
              Evaluated& best) {
  constexpr int kEvaluations = 64;
  const int end = evaluator.evaluations() + kEvaluations;
  const auto shift = [&](int slow, int fast, double share) {
    Evaluated tried = best;
    const double wanted = share * work_of(loads, best.placement.samples[at(slow)]);
    if (!move_whole(request, loads, slow, fast, wanted, tried.placement)) {
      return false;
    }
    for (const int replica : {slow, fast}) {
      ReplicaTimes& times = tried.times[at(replica)];
      times = evaluator.evaluate(tried.placement, replica);
      if (!slower_last(times, best.times[at(slow)]) || (best.fits() && !times.fits())) {
        return false;
      }
    }
    best = std::move(tried);
    return true;
  };
  level_replicas(best.times, shift, [&] { return evaluator.evaluations() + 2 <= end; });
}

}  // namespace

void cut_heavy_samples(const AssignRequest& request,
                       const BatchLoads& loads,
                       StepEvaluator& evaluator,
                       int budget,
                       bool all_at_once,
                       Evaluated& best) {
  const double most = all_at_once ? largest_slot(request, loads) : 0;
  for (int replica = 0; all_at_once && replica < request.plan->replicas; ++replica) {
    cut_all_above(request, loads, evaluator, replica, most, best);
  }
  cut_one_by_one(request, loads, evaluator, budget, best);
  even_out(request, loads, evaluator, best);
}

}  // namespace entrain
