// A profile from a device's peak numbers, for studies of devices that are not available.
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
  double memory_gib = 0;      // usable, of one device; 0: unknown
  double efficiency = 0.5;    // share of peak that large matrix products reach, in (0, 1]
  double launch_seconds = 0;  // fixed cost per layer and operation
  LinkSpec link;
};

std::vector<std::string> device_model_names();

// "cpu-2core" (float32: two AVX2 cores at 2.5 GHz), "a40", "a40-nvlink" and "h100" (bfloat16):
// stated peaks from the vendors' data sheets; efficiencies, launch costs and latencies are round
// assumptions. Nothing is measured.
//
// Throws  InvalidInput with the known names.
DeviceModel device_model(const std::string& name);

struct AnalyticOptions {
  std::vector<int> tensor_parallel = {1};   // each >= 1
  std::vector<int> context_parallel = {1};  // each >= 1
};

// forward = matrix and attention FLOPs at peak · efficiency + moved bytes at full bandwidth;
// backward_input = matrix FLOPs + twice the attention FLOPs and the moved bytes;
// backward_weight = matrix FLOPs + its own moved bytes; launch_seconds for each. All-reduce at half
// the link's bandwidth (each byte passes twice), AdamW by its traffic of 28 bytes a parameter.
//
// At a degree above 1 these are the device's share (device_work()) plus layer_exchange(), none
// of it overlapped with compute: bytes at the link's bandwidth are added to the cost per
// token, one latency per collective to the launch constant. Assumed, not measured: the lane's
// devices are joined by `link`, smaller matrices are as efficient as large ones, tokens, pairs and
// target tokens divide evenly.
//
// Ensures  for every module one entry per layer kind at each pair of the options' degrees, less
//          tensor degrees with a sharding_obstacle() there; repeats count once; valid for the
//          model where a degree is left for each module.
// Throws   InvalidInput for a device without peaks or with an efficiency outside (0, 1], a degree
//          below 1, or an empty list.
Profile analytic_profile(const ModelSpec& model,
                         const DeviceModel& device,
                         const AnalyticOptions& options = {});

}  // namespace entrain
