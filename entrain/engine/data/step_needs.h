// What one lane of one replica reads in one step, and in which order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/dataset/index.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/program.h"

namespace entrain::engine {

struct SegmentNeed {
  int module = 0;
  int sample = 0;  // index into the global batch
  int segment = 0;
};

// What one lane of one replica reads in one step.
struct StepNeeds {
  std::vector<int> batch;             // [sample] index into Index::samples
  std::vector<SegmentNeed> segments;  // in the order of use
  std::vector<int> texts;             // samples whose token ids are used
  std::int64_t step = 0;              // of the run; for a feed and for several readers
  std::string digest = {};            // of the step; for a feed
  int replica = 0;
  int lane = 0;
  // Ranks of the lane that queue the same needs with the same reader, each once, >= 1: every piece
  // is decoded once for all of them.
  int readers = 1;
};

// Segments for a lane that hosts an encoder's first stage, in the order of its forward operations;
// texts for a lane that hosts the LLM's first or last stage, once for all chunks of a sample, and
// if positions depend on them (`text_positions`: M-RoPE) for every lane of the LLM.
StepNeeds needs_of(const Program& program,
                   int replica,
                   int lane,
                   std::vector<int> batch,
                   bool text_positions = false);

// Shapes  result: [segment] bytes of its input, as in StepNeeds::segments.
std::vector<std::int64_t> segment_bytes(const StepNeeds& needs,
                                        const Index& index,
                                        const ModelSpec& model);

}  // namespace entrain::engine
