// The arithmetic of one unit: from what a group's forward reads to the root of its graph.
//
// Read first: run_forward(). Messages, order and errors are the lane run's business (lane_run.h).
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
  std::vector<const TokenizedSample*> texts;  // [item]; the LLM's first and last stage
  std::vector<FeaturePart> features;          // the LLM's first stage
  std::vector<PackedItem> items;              // [item]; the LLM's stages
};

struct UnitOutput {
  at::Tensor tensor;    // shape as output_shape(); on the LLM's last stage the loss of the group,
                        // summed over targets and divided by the step's target tokens
  at::Tensor loss_sum;  // LLM's last stage: before the division, no dimensions, without graph;
                        // where the stage computes, so that nobody waits for it before the end
};

// Reads the group's segments and texts from `data`, as far as this stage uses them.
//
// Throws  what `data` throws; InternalError naming the sample when real lengths are not those that
//         the step was planned with.
void read_data(const StepSizes& sizes,
               const std::vector<std::string>& sample_ids,
               const UnitKey& unit,
               const Group& group,
               StepData& data,
               UnitInput& input);

// Records a graph if gradients are enabled on the calling thread.
UnitOutput run_forward(const StepSizes& sizes,
                       const LaneStages& stages,
                       const StageOptions& options,
                       const UnitKey& unit,
                       const Group& group,
                       UnitInput& input,
                       std::int64_t target_tokens);

}  // namespace entrain::engine
