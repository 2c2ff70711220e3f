// The cost of chunks: how a sample's cost is shared out to ranges of its tokens.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/cost/step_costs.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

// Work of a sample's first tokens in the layers of the LLM.
struct Prefix {
  double pairs = 0;
  double tokens = 0;
  double target_tokens = 0;
};

Prefix prefix_of(const SampleWork& work, std::int64_t tokens) {
  const std::int64_t first_target = work.llm_tokens - work.target_tokens;
  return {static_cast<double>(tokens * tokens / 2),
          static_cast<double>(tokens),
          static_cast<double>(std::max<std::int64_t>(0, tokens - first_target))};
}

double weigh(const CostWeights& weights, const Prefix& prefix) {
  return weights.per_pair * prefix.pairs + weights.per_token * prefix.tokens +
         weights.per_target_token * prefix.target_tokens;
}

// Shares of one sample's costs that fall on one range of its tokens.
class Range {
 public:
  Range(const SampleWork& work, std::int64_t begin, std::int64_t end)
      : before_(prefix_of(work, begin)),
        until_(prefix_of(work, end)),
        all_(prefix_of(work, work.llm_tokens)),
        last_(end == work.llm_tokens) {}

  [[nodiscard]] std::int64_t share(std::int64_t whole, const CostWeights& weights) const {
    if (whole == 0) {
      return 0;
    }
    const double total = weigh(weights, all_);
    const auto until = [&](const Prefix& prefix) {
      const double ratio = total > 0 ? weigh(weights, prefix) / total : prefix.tokens / all_.tokens;
      const double value = std::nearbyint(static_cast<double>(whole) * ratio);
      return std::min(whole, static_cast<std::int64_t>(value));
    };
    return (last_ ? whole : until(until_)) - until(before_);
  }

  [[nodiscard]] nanoseconds share(nanoseconds whole, const CostWeights& weights) const {
    return nanoseconds{share(whole.count(), weights)};
  }

  // The range's own, whose largest layer may be another one than the sample's.
  [[nodiscard]] RecomputeBytes share(const RecomputeBytes& whole,
                                     const ChunkWeights& weights) const {
    RecomputeBytes result;
    result.all = share(whole.all, weights.recompute);
    const CostWeights& largest = weights.recompute_largest;
    const double bytes =
        std::max(largest.per_token * (until_.tokens - before_.tokens),
                 largest.per_target_token * (until_.target_tokens - before_.target_tokens));
    result.largest = largest.per_token + largest.per_target_token > 0
                         ? static_cast<std::int64_t>(std::nearbyint(bytes))
                         : share(whole.largest, largest);
    return result;
  }

 private:
  Prefix before_;
  Prefix until_;
  Prefix all_;
  bool last_;
};

// ⌊whole · tokens / all⌋ without overflow: all and tokens are at most 2^30.
std::int64_t even_share(std::int64_t whole, std::int64_t tokens, std::int64_t all) {
  return whole / all * tokens + whole % all * tokens / all;
}

const SampleWork& work_of(const StepCosts& costs, const WorkItem& item) {
  if (at(item.sample) >= costs.work.size()) {
    throw InvalidInput(
        fmt::format("sample {} is cut into chunks, but its tokens are not known", item.sample));
  }
  const SampleWork& work = costs.work[at(item.sample)];
  if (item.token_begin < 0 || item.token_begin >= item.token_end ||
      item.token_end > work.llm_tokens) {
    throw InvalidInput(fmt::format("sample {} has {} tokens in the LLM; no chunk of [{}, {})",
                                   item.sample,
                                   work.llm_tokens,
                                   item.token_begin,
                                   item.token_end));
  }
  return work;
}

}  // namespace

UnitCost unit_cost(const StepCosts& costs, int module, int stage, const WorkItem& item) {
  const StageCosts& of_stage = costs.modules[at(module)].stages[at(stage)];
  const UnitCost& whole = of_stage.units[at(costs.unit_of(module, item))];
  if (!item.is_chunk()) {
    return whole;
  }
  const SampleWork& work = work_of(costs, item);
  const Range range(work, item.token_begin, item.token_end);
  const ChunkWeights& weights = of_stage.chunk_weights;
  UnitCost result;
  result.time.forward = range.share(whole.time.forward, weights.forward);
  result.time.backward_input = range.share(whole.time.backward_input, weights.backward_input);
  result.time.backward_weight = range.share(whole.time.backward_weight, weights.backward_weight);
  result.time.split = range.share(whole.time.split, weights.split);
  result.activation_bytes = range.share(whole.activation_bytes, weights.activation);
  result.recompute = range.share(whole.recompute, weights);
  result.output_bytes = even_share(whole.output_bytes, item.token_end, work.llm_tokens) -
                        even_share(whole.output_bytes, item.token_begin, work.llm_tokens);
  return result;
}

bool ends_sample(const StepCosts& costs, const WorkItem& item) {
  return !item.is_chunk() || item.token_end == work_of(costs, item).llm_tokens;
}

std::int64_t key_value_bytes(const StepCosts& costs, int stage, const WorkItem& item) {
  if (ends_sample(costs, item)) {
    return 0;
  }
  return costs.modules.back().stages[at(stage)].key_value_bytes_per_token *
         (item.token_end - item.token_begin);
}

}  // namespace entrain
