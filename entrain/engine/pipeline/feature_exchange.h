// Encoder features at the LLM's first stage: from one message per encoder group to LLM groups, and
// their gradients back to one message per group.
//
// Read first: FeatureExchange. A group's features hold rows per item in group order, so the rows
// taken by one LLM group are contiguous. Each part is a leaf of that group's graph; after the
// backward of all LLM groups that the encoder group serves, the leaves' gradients in order
// are its gradient. A part belongs to the earliest chunk that may hold its tokens; later chunks
// of its samples read the same leaf. Their backward runs first, so the gradient is complete.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/spec/program.h"

#include "entrain/engine/pipeline/shapes.h"

namespace entrain::engine {

// The part of an encoder group taken by one LLM group.
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

  // Requires  everything `sizes` refers to outlives this object.
  FeatureExchange(const StepSizes& sizes, int replica);

  // The parts that the LLM group takes, by module, encoder slot and group, followed by the parts
  // that earlier chunks of its samples took. `take_features` is called once per encoder group, at
  // the first LLM group that it serves. With `gradients`, leaves of groups with a backward
  // require gradients and are kept until give().
  std::vector<FeaturePart> take(const LlmGroupRef& group,
                                bool gradients,
                                const Take& take_features);

  // After the LLM group's backward: calls `give_gradient` for every encoder group whose last LLM
  // group this was. Parts without a gradient count as zero.
  void give(const LlmGroupRef& group, const Give& give_gradient);

  [[nodiscard]] bool empty() const { return groups_.empty(); }

 private:
  struct GroupState {
    at::Tensor features;             // until every part has been taken
    std::vector<at::Tensor> leaves;  // [part], from its taker's forward to its last use
    std::vector<int> to_read;        // [part] later chunks that will read it
    int to_take = 0;                 // parts
    int to_read_all = 0;             // sum of to_read
    int to_give = 0;                 // parts
  };

  void find_readers(const std::vector<std::vector<Group>>& llm_slots);
  void forget_unless_needed(std::map<UnitKey, GroupState>::iterator place);

  std::map<LlmGroupRef, std::vector<FeaturePart>> taken_by_;  // without leaves
  std::map<LlmGroupRef, std::vector<FeaturePart>> read_by_;   // taken by earlier chunks; likewise
  std::map<UnitKey, std::vector<int>> num_readers_;           // [part] later chunks
  std::map<UnitKey, GroupState> groups_;
};

}  // namespace entrain::engine
