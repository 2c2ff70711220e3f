#include "entrain/engine/pipeline/feature_exchange.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
FeatureExchange::FeatureExchange(const StepSizes& sizes, int replica) {
  const ReplicaProgram& program = sizes.program.replicas.at(at(replica));
  const int llm = sizes.program.llm_module();
  for (int module = 0; module < llm; ++module) {
    const int last_stage = sizes.program.num_stages.at(at(module)) - 1;
    const auto& slots = program.groups.at(at(module));
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      for (std::size_t g = 0; g < slots[slot].size(); ++g) {
        const Group& group = slots[slot][g];
        FeaturePart part;
        part.unit = {module, last_stage, static_cast<int>(slot), static_cast<int>(g)};
        part.takes_backward = group.takes_backward.at(at(last_stage)) != 0;
        num_readers_[part.unit].resize(group.llm_slots.size());
        std::size_t first_item = 0;
        for (std::size_t p = 0; p < group.llm_slots.size(); ++p) {
          const std::size_t num_items = at(group.part_sizes.at(p));
          part.part = static_cast<int>(p);
          part.items = std::span(group.items).subspan(first_item, num_items);
          part.begin += part.rows;
          part.rows = 0;
          for (const WorkItem& item : part.items) {
            part.rows += feature_rows(sizes, module, item);
          }
          taken_by_[group.served(p)].push_back(part);
          first_item += num_items;
        }
      }
    }
  }
  find_readers(program.groups.at(at(llm)));
}

// The groups that hold a later chunk of a sample whose features an earlier group takes.
void FeatureExchange::find_readers(const std::vector<std::vector<Group>>& llm_slots) {
  std::map<int, std::vector<LlmGroupRef>> holders;  // [sample] its chunks' groups up to here
  for (std::size_t slot = 0; slot < llm_slots.size(); ++slot) {
    for (std::size_t g = 0; g < llm_slots[slot].size(); ++g) {
      const LlmGroupRef ref{static_cast<int>(slot), static_cast<int>(g)};
      std::set<int> samples;
      std::set<LlmGroupRef> earlier;
      for (const WorkItem& item : llm_slots[slot][g].items) {
        if (item.is_chunk()) {
          samples.insert(item.sample);
          std::vector<LlmGroupRef>& groups = holders[item.sample];
          earlier.insert(groups.begin(), groups.end());
          groups.push_back(ref);
        }
      }
      for (const LlmGroupRef& taker : earlier) {
        const auto parts = taken_by_.find(taker);
        if (parts == taken_by_.end()) {
          continue;
        }
        for (const FeaturePart& part : parts->second) {
          if (std::any_of(part.items.begin(), part.items.end(), [&](const WorkItem& item) {
                return samples.contains(item.sample);
              })) {
            read_by_[ref].push_back(part);
            ++num_readers_.at(part.unit)[at(part.part)];
          }
        }
      }
    }
  }
}

std::vector<FeaturePart> FeatureExchange::take(const LlmGroupRef& group,
                                               bool gradients,
                                               const Take& take_features) {
  std::vector<FeaturePart> parts;
  if (const auto found = taken_by_.find(group); found != taken_by_.end()) {
    parts = found->second;
  }
  for (FeaturePart& part : parts) {
    const auto [place, first] = groups_.try_emplace(part.unit);
    GroupState& state = place->second;
    if (first) {
      state.features = take_features(part.unit);
      state.to_read = num_readers_.at(part.unit);
      state.to_read_all = std::accumulate(state.to_read.begin(), state.to_read.end(), 0);
      state.to_take = static_cast<int>(state.to_read.size());
      state.to_give = gradients && part.takes_backward ? state.to_take : 0;
      state.leaves.resize(state.to_read.size());
    }
    part.leaf = state.features.narrow(0, part.begin, part.rows).detach();
    part.leaf.set_requires_grad(state.to_give > 0);
    if (state.to_give > 0 || state.to_read[at(part.part)] > 0) {
      state.leaves[at(part.part)] = part.leaf;
    }
    if (--state.to_take == 0) {
      state.features = at::Tensor();
    }
    forget_unless_needed(place);
  }
  if (const auto found = read_by_.find(group); found != read_by_.end()) {
    for (FeaturePart part : found->second) {
      const auto place = groups_.find(part.unit);
      ENTRAIN_INVARIANT(place != groups_.end() && place->second.leaves[at(part.part)].defined(),
                        concat("a chunk in LLM slot ", group.slot, " runs before earlier ones"));
      GroupState& state = place->second;
      part.leaf = state.leaves[at(part.part)];
      parts.push_back(std::move(part));
      --state.to_read_all;
      if (--state.to_read[at(parts.back().part)] == 0 && state.to_give == 0) {
        state.leaves[at(parts.back().part)] = at::Tensor();
      }
      forget_unless_needed(place);
    }
  }
  return parts;
}

void FeatureExchange::forget_unless_needed(std::map<UnitKey, GroupState>::iterator place) {
  const GroupState& state = place->second;
  if (state.to_take == 0 && state.to_read_all == 0 && state.to_give == 0) {
    groups_.erase(place);
  }
}

void FeatureExchange::give(const LlmGroupRef& group, const Give& give_gradient) {
  const auto parts = taken_by_.find(group);
  if (parts == taken_by_.end()) {
    return;
  }
  for (const FeaturePart& part : parts->second) {
    if (!part.takes_backward) {
      continue;
    }
    const auto found = groups_.find(part.unit);
    ENTRAIN_INVARIANT(found != groups_.end() && found->second.to_give > 0,
                      concat("backward of LLM slot ", group.slot, " before its forward"));
    GroupState& state = found->second;
    if (--state.to_give > 0) {
      continue;
    }
    std::vector<at::Tensor> gradients;
    gradients.reserve(state.leaves.size());
    for (const at::Tensor& leaf : state.leaves) {
      ENTRAIN_INVARIANT(leaf.defined(),
                        concat("a part without forward when LLM slot ", group.slot, " has ended"));
      gradients.push_back(leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf.detach()));
    }
    give_gradient(part.unit, gradients.size() == 1 ? gradients.front() : at::cat(gradients));
    groups_.erase(found);
  }
}

}  // namespace entrain::engine
