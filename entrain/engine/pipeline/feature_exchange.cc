#include "entrain/engine/pipeline/feature_exchange.h"

#include <utility>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

std::size_t at_index(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

FeatureExchange::FeatureExchange(const StepSizes& sizes, int replica) {
  const ReplicaProgram& program = sizes.program.replicas.at(at_index(replica));
  const int llm = sizes.program.llm_module();
  by_slot_.resize(program.groups.at(at_index(llm)).size());
  for (int module = 0; module < llm; ++module) {
    const int last_stage = sizes.program.num_stages.at(at_index(module)) - 1;
    const auto& slots = program.groups.at(at_index(module));
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      for (std::size_t g = 0; g < slots[slot].size(); ++g) {
        const Group& group = slots[slot][g];
        FeaturePart part;
        part.unit = {module, last_stage, static_cast<int>(slot), static_cast<int>(g)};
        part.takes_backward = group.takes_backward.at(at_index(last_stage)) != 0;
        num_parts_[part.unit] = static_cast<int>(group.llm_slots.size());
        std::size_t first_item = 0;
        for (std::size_t p = 0; p < group.llm_slots.size(); ++p) {
          const std::size_t num_items = at_index(group.part_sizes.at(p));
          part.part = static_cast<int>(p);
          part.items = std::span(group.items).subspan(first_item, num_items);
          part.begin += part.rows;
          part.rows = 0;
          for (const WorkItem& item : part.items) {
            part.rows += feature_rows(sizes, module, item);
          }
          by_slot_.at(at_index(group.llm_slots[p])).push_back(part);
          first_item += num_items;
        }
      }
    }
  }
}

std::vector<FeaturePart> FeatureExchange::take(int llm_slot,
                                               bool gradients,
                                               const Take& take_features) {
  std::vector<FeaturePart> parts = by_slot_.at(at_index(llm_slot));
  for (FeaturePart& part : parts) {
    const auto [place, first] = groups_.try_emplace(part.unit);
    GroupState& state = place->second;
    if (first) {
      state.features = take_features(part.unit);
      state.to_take = num_parts_.at(part.unit);
      state.to_give = gradients && part.takes_backward ? state.to_take : 0;
      state.leaves.resize(at_index(state.to_give));
    }
    part.leaf = state.features.narrow(0, part.begin, part.rows).detach();
    if (state.to_give > 0) {
      part.leaf.set_requires_grad(true);
      state.leaves.at(at_index(part.part)) = part.leaf;
    }
    if (--state.to_take == 0) {
      state.features = at::Tensor();
      if (state.to_give == 0) {
        groups_.erase(place);
      }
    }
  }
  return parts;
}

void FeatureExchange::give(int llm_slot, const Give& give_gradient) {
  for (const FeaturePart& part : by_slot_.at(at_index(llm_slot))) {
    if (!part.takes_backward) {
      continue;
    }
    const auto found = groups_.find(part.unit);
    ENTRAIN_INVARIANT(found != groups_.end() && found->second.to_give > 0,
                      concat("backward of LLM slot ", llm_slot, " before its forward"));
    GroupState& state = found->second;
    if (--state.to_give > 0) {
      continue;
    }
    std::vector<at::Tensor> gradients;
    gradients.reserve(state.leaves.size());
    for (const at::Tensor& leaf : state.leaves) {
      ENTRAIN_INVARIANT(leaf.defined(),
                        concat("a part without forward when LLM slot ", llm_slot, " has ended"));
      gradients.push_back(leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf.detach()));
    }
    give_gradient(part.unit, gradients.size() == 1 ? gradients.front() : at::cat(gradients));
    groups_.erase(found);
  }
}

}  // namespace entrain::engine
