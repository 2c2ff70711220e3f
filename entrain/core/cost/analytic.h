// A profile from a device's peak numbers, for studies of devices that are not at hand.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/spec/profile.h"

namespace entrain {

struct DeviceModel {
  std::string name;
  std::string dtype = "float32";
  double peak_flops = 0;  // dense matrix work per second at the dtype
  double memory_bytes_per_second = 0;
  double efficiency = 0.5;    // share of peak that large matrix products reach, in (0, 1]
  double launch_seconds = 0;  // fixed cost per layer and operation
  LinkSpec link;
};

std::vector<std::string> device_model_names();

// "cpu-2core" (float32: two AVX2 cores at 2.5 GHz), "a40" and "h100" (bfloat16): stated peaks from
// the vendors' data sheets; efficiencies, launch costs and latencies are round assumptions. Nothing
// of it is measured.
// Throws  InvalidInput with the known names.
DeviceModel device_model(const std::string& name);

// What one layer does, per token of its module (output head: per target token).
struct LayerWork {
  double matrix_flops = 0;        // of the forward; each gradient costs as much again
  double attention_flops = 0;     // per attention pair, of the forward
  double moved_bytes = 0;         // read and written by the forward outside matrix products
  double weight_moved_bytes = 0;  // likewise by the weight gradient
  double activation_bytes = 0;    // kept for the backward
  double output_bytes = 0;        // of the result
};

// FLOP counts per layer kind: 2 FLOPs a multiply-add, 4 · width FLOPs an attention pair (scores and
// values); norms, rotary positions, gates, residuals and the softmax of the loss count as memory
// traffic, attention scores stay on chip. `bytes` is the size of a number.
LayerWork layer_work(const ModelSpec& model, int module, int layer, double bytes);

// forward = matrix and attention FLOPs at peak · efficiency + moved bytes at full bandwidth;
// backward_input = matrix FLOPs + twice the attention FLOPs and the moved bytes;
// backward_weight = matrix FLOPs + its own moved bytes; launch_seconds for each. All-reduce at half
// the link's bandwidth (each byte passes twice), AdamW by its traffic of 28 bytes a parameter.
//
// Ensures  one entry per layer kind of every module at tensor_parallel 1; valid for the model.
// Throws   InvalidInput for a device without peaks or with an efficiency outside (0, 1].
Profile analytic_profile(const ModelSpec& model, const DeviceModel& device);

}  // namespace entrain
