// Shapes of tensors sent between stages, computed from sizes: ranks never exchange shapes.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/program.h"

namespace entrain::engine {

// The inputs of all functions here; holds references.
struct StepSizes {
  const ModelSpec& model;
  const Program& program;
  const StepCosts& costs;
};

// Of its module, or of the LLM.
bool is_last_stage(const Program& program, const UnitKey& unit);
bool is_last_llm_stage(const Program& program, const UnitKey& unit);

// The segment of an encoder's item.
const SegmentWork& segment_of(const StepSizes& sizes, int module, const WorkItem& item);
// Rows of one item: a segment's tokens inside its encoder, a sample's or chunk's tokens in
// the LLM.
std::int64_t item_rows(const StepSizes& sizes, int module, const WorkItem& item);
// Rows of one segment in the LLM's sequence.
std::int64_t feature_rows(const StepSizes& sizes, int module, const WorkItem& item);

// Shape of the unit's forward output, and of its gradient.
//
// encoder, last stage  [features, output_width()]: rows per item in group order
// encoder, other; LLM  [tokens, output_width()]
std::vector<std::int64_t> output_shape(const StepSizes& sizes,
                                       const UnitKey& unit,
                                       const Group& group);

}  // namespace entrain::engine
