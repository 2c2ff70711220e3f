// The tensors a unit's forward reads, for its stage, and the loss of the last stage.
//
// Read first: UnitInput. RealCompute::forward() runs the stage between them (real_compute.h).
#pragma once

#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/spec/program.h"

#include "entrain/engine/data/step_data.h"
#include "entrain/engine/models/chunk_attention.h"
#include "entrain/engine/pipeline/feature_exchange.h"
#include "entrain/engine/pipeline/lane_stages.h"
#include "entrain/engine/pipeline/shapes.h"

namespace entrain::engine {

// What a forward reads; which members are set depends on the stage.
struct UnitInput {
  at::Tensor hidden;                          // [T, D], detached; all but first stages
  std::vector<SegmentData> segments;          // [item]; an encoder's first stage
  std::vector<const TokenizedSample*> texts;  // [item]; the LLM's first and last stage; M-RoPE: all
  std::vector<FeaturePart> features;          // the LLM's first stage
  std::vector<PackedItem> items;              // [item]; the LLM's stages
};

// Reads the group's segments and texts from `data`, if this stage uses them.
//
// Throws  what `data` throws; InternalError naming the sample if real lengths differ from those
//         used for planning.
void read_data(const StepSizes& sizes,
               const std::vector<std::string>& sample_ids,
               const UnitKey& unit,
               const Group& group,
               StepData& data,
               UnitInput& input);

// Sets the positions of the items' rows, if the model's depend on images (M-RoPE).
// Requires  read_data(), items.
void place_items(const StepSizes& sizes, const Group& group, UnitInput& input);

// An encoder stage's input, packed.
struct EncoderInput {
  at::Tensor hidden;               // input of EncoderStage::forward()
  std::vector<SegmentGrid> grids;  // [item]
};
// Moves what it uses out of `input`.
EncoderInput encoder_input(const StepSizes& sizes,
                           const StageOptions& options,
                           const UnitKey& unit,
                           const Group& group,
                           UnitInput& input);

// The input of LlmStage::decode(): on the first stage embedded tokens with features at their
// positions. Moves what it uses out of `input`.
at::Tensor llm_input(const StepSizes& sizes,
                     const LlmStage& stage,
                     const StageOptions& options,
                     const UnitKey& unit,
                     const Group& group,
                     UnitInput& input);

// On the LLM's last stage, for the decoded rows: LlmStage::loss_sum() at the group's targets.
at::Tensor losses_of(const LlmStage& stage,
                     const StageOptions& options,
                     const UnitInput& input,
                     const at::Tensor& hidden);

}  // namespace entrain::engine
