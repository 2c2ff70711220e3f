// Encoder features at the LLM's first stage: from one message per encoder group to LLM slots, and
// their gradients back to one message per group.
//
// Read first: FeatureExchange. A group's features hold rows per item in group order, so the rows of
// the part that one LLM slot takes are neighbours. Each part is a leaf of its slot's graph; when
// all slots that the group serves have run backward, the leaves' gradients in order are the group's
// gradient.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/spec/program.h"

#include "entrain/engine/pipeline/shapes.h"

namespace entrain::engine {

// The part of an encoder group that an LLM slot takes.
struct FeaturePart {
  UnitKey unit;  // last encoder stage
  int part = 0;  // index into the group's llm_slots
  std::span<const WorkItem> items;
  std::int64_t begin = 0;  // first row in the group's features
  std::int64_t rows = 0;
  bool takes_backward = false;
  at::Tensor leaf;  // [rows, LLM's hidden], set by FeatureExchange::take()
};

class FeatureExchange {
 public:
  using Take = std::function<at::Tensor(const UnitKey&)>;        // a group's features
  using Give = std::function<void(const UnitKey&, at::Tensor)>;  // a group's gradient

  // Requires  everything behind `sizes` outlives this object.
  FeatureExchange(const StepSizes& sizes, int replica);

  // Parts of the slot by module, encoder slot and group. `take` is called once per group, at the
  // first slot that it serves. With `gradients`, leaves of groups that take part in backward
  // require gradients and are kept until give().
  std::vector<FeaturePart> take(int llm_slot, bool gradients, const Take& take_features);

  // After the slot's backward: calls `give_gradient` for every group whose last slot this was.
  // Parts that got no gradient count as zero.
  void give(int llm_slot, const Give& give_gradient);

  [[nodiscard]] bool empty() const { return groups_.empty(); }

 private:
  struct GroupState {
    at::Tensor features;             // until every slot has taken its part
    std::vector<at::Tensor> leaves;  // [part], from the slot's forward to the group's gradient
    int to_take = 0;                 // parts
    int to_give = 0;                 // parts
  };
  std::vector<std::vector<FeaturePart>> by_slot_;  // [LLM slot], without leaves
  std::map<UnitKey, int> num_parts_;
  std::map<UnitKey, GroupState> groups_;
};

}  // namespace entrain::engine
