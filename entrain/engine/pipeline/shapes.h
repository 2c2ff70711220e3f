// Shapes of the tensors that travel between stages, from sizes alone: no rank ever asks another.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/program.h"

namespace entrain::engine {

// What all functions here read; holds references.
struct StepSizes {
  const ModelSpec& model;
  const Program& program;
  const StepCosts& costs;
};

bool is_last_llm_stage(const Program& program, const UnitKey& unit);

// Rows that one item brings: a segment's tokens inside its encoder, a sample's or chunk's tokens in
// the LLM.
std::int64_t item_rows(const StepSizes& sizes, int module, const WorkItem& item);
// Rows that one segment brings to the LLM's sequence.
std::int64_t feature_rows(const StepSizes& sizes, int module, const WorkItem& item);

// Shape of the unit's forward output, and of the gradient that comes back for it.
//
// encoder, last stage  [features, LLM's hidden]: rows per item in group order
// encoder, other       [tokens, encoder's hidden]
// LLM                  [tokens, LLM's hidden]
std::vector<std::int64_t> output_shape(const StepSizes& sizes,
                                       const UnitKey& unit,
                                       const Group& group);

}  // namespace entrain::engine
