// A profile from a device's peak numbers, for studies of devices that are not at hand.
#pragma once

#include <string>

#include "entrain/core/spec/profile.h"

namespace entrain {

struct DeviceModel {
  std::string name;
  double peak_flops = 0;  // dense matrix work per second at the dtype
  double memory_bytes_per_second = 0;
  double efficiency = 0.5;    // share of peak that large matrix products reach, in (0, 1]
  double launch_seconds = 0;  // fixed cost per layer and operation
  LinkSpec link;
};

// "cpu-2core", "a40", "h100": stated peaks from the vendors' data sheets; not measured.
// Throws  InvalidInput with the known names.
DeviceModel device_model(const std::string& name);

// FLOP counts per layer kind: 2 FLOPs a multiply-add; backward_input and backward_weight of a
// matrix product each cost one forward; attention's backward costs twice its forward and is input
// gradient.
Profile analytic_profile(const ModelSpec& model, const DeviceModel& device);

}  // namespace entrain
