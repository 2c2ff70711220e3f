// FLOPs and bytes of a layer: the counts behind analytic costs.
#pragma once

#include "entrain/core/spec/model.h"

namespace entrain {

// Work of one layer, per token of its module (output head: per target token).
struct LayerWork {
  double matrix_flops = 0;        // of the forward; each gradient costs the same again
  double attention_flops = 0;     // per attention pair, of the forward
  double moved_bytes = 0;         // read and written by the forward outside matrix products
  double weight_moved_bytes = 0;  // likewise by the weight gradient
  double input_bytes = 0;         // of its input: all that is kept if it is recomputed
  double activation_bytes = 0;    // kept for the backward
  double output_bytes = 0;        // of the result
};

// FLOP counts per layer kind: 2 FLOPs a multiply-add, 4 · width FLOPs an attention pair (scores and
// values); norms, rotary positions, gates, residuals and the softmax of the loss count as memory
// traffic, attention scores stay on chip. `bytes` is the size of a number. Of a
// layer without adapters (trained_profile.h).
LayerWork layer_work(const ModelSpec& model, int module, int layer, double bytes);

}  // namespace entrain
