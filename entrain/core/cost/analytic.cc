#include "entrain/core/cost/analytic.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/dtype.h"
#include "entrain/core/cost/sharding.h"

namespace entrain {
namespace {

using std::chrono::microseconds;

const std::vector<DeviceModel>& devices() {
  static const std::vector<DeviceModel> kDevices = {
      // 2 cores × 2 units × 8 lanes × 2 FLOPs × 2.5 GHz; messages are copies in memory.
      {.name = "cpu-2core",
       .dtype = "float32",
       .peak_flops = 160e9,
       .memory_bytes_per_second = 20e9,
       .efficiency = 0.6,
       .launch_seconds = 20e-6,
       .link = {.latency = microseconds(20), .bytes_per_second = 5e9}},
      // PCIe 4.0 x16 between devices.
      {.name = "a40",
       .dtype = "bfloat16",
       .peak_flops = 149.7e12,
       .memory_bytes_per_second = 696e9,
       .memory_gib = 44.4,
       .efficiency = 0.5,
       .launch_seconds = 50e-6,
       .link = {.latency = microseconds(10), .bytes_per_second = 31.5e9}},
      // The same in pairs joined by NVLink 3 (112.5 GB/s both ways), for tensor parallelism of 2.
      {.name = "a40-nvlink",
       .dtype = "bfloat16",
       .peak_flops = 149.7e12,
       .memory_bytes_per_second = 696e9,
       .memory_gib = 44.4,
       .efficiency = 0.5,
       .launch_seconds = 50e-6,
       .link = {.latency = microseconds(10), .bytes_per_second = 56.25e9}},
      // SXM5, without sparsity; NVLink 4 in one direction.
      {.name = "h100",
       .dtype = "bfloat16",
       .peak_flops = 989.4e12,
       .memory_bytes_per_second = 3.35e12,
       .memory_gib = 74.5,
       .efficiency = 0.5,
       .launch_seconds = 50e-6,
       .link = {.latency = microseconds(10), .bytes_per_second = 450e9}},
  };
  return kDevices;
}

// An operation on a device and its links.
CostCurve cost_curve(const DeviceModel& device,
                     double pair_flops,
                     double token_flops,
                     double token_bytes,
                     const Exchange& exchange) {
  const double flops_per_ns = device.peak_flops * device.efficiency * 1e-9;
  CostCurve result;
  result.per_pair_ns = pair_flops / flops_per_ns;
  result.per_token_ns =
      token_flops / flops_per_ns + token_bytes / device.memory_bytes_per_second * 1e9;
  if (device.link.bytes_per_second > 0) {
    result.per_token_ns += exchange.bytes_per_token / device.link.bytes_per_second * 1e9;
  }
  result.per_launch_ns = device.launch_seconds * 1e9 +
                         exchange.collectives * static_cast<double>(device.link.latency.count());
  return result;
}

void check(const DeviceModel& device) {
  if (!(device.peak_flops > 0 && device.memory_bytes_per_second > 0)) {
    throw InvalidInput(
        fmt::format("device model '{}': {} FLOP/s and {} bytes/s given; numbers "
                    "above 0 are needed",
                    device.name,
                    device.peak_flops,
                    device.memory_bytes_per_second));
  }
  if (!(device.efficiency > 0 && device.efficiency <= 1 && device.launch_seconds >= 0)) {
    throw InvalidInput(
        fmt::format("device model '{}': efficiency {} and launch_seconds {} given; (0, 1] and at "
                    "least 0 are needed",
                    device.name,
                    device.efficiency,
                    device.launch_seconds));
  }
}

void check_degrees(const char* name, const std::vector<int>& degrees) {
  if (degrees.empty() || *std::min_element(degrees.begin(), degrees.end()) < 1) {
    throw InvalidInput(fmt::format(
        "analytic profile: {} [{}] given; at least one degree is needed, each at least 1",
        name,
        fmt::join(degrees, ", ")));
  }
}

LayerProfile layer_profile(const ModelSpec& model,
                           const DeviceModel& device,
                           int module,
                           int layer,
                           int tensor,
                           int context) {
  const auto bytes =
      static_cast<double>(dtype_bytes(device.dtype, "device model '" + device.name + "'"));
  const LayerWork work = device_work(model, module, layer, bytes, tensor, context);
  const LayerExchange exchange = layer_exchange(model, module, layer, bytes, tensor, context);
  LayerProfile entry;
  entry.module = module_name(model, module);
  entry.kind = layer_kind(model, module, layer);
  entry.tensor_parallel = tensor;
  entry.context_parallel = context;
  const auto curve = [&](double pair_flops, double moved_bytes, const Exchange& received) {
    return cost_curve(device, pair_flops, work.matrix_flops, moved_bytes, received);
  };
  entry.forward = curve(work.attention_flops, work.moved_bytes, exchange.forward);
  entry.backward_input =
      curve(2 * work.attention_flops, 2 * work.moved_bytes, exchange.backward_input);
  entry.backward_weight = curve(0, work.weight_moved_bytes, exchange.backward_weight);
  entry.activation_bytes_per_token = work.activation_bytes;
  entry.output_bytes_per_token = work.output_bytes;
  return entry;
}

}  // namespace

std::vector<std::string> device_model_names() {
  std::vector<std::string> names;
  for (const DeviceModel& device : devices()) {
    names.push_back(device.name);
  }
  return names;
}

DeviceModel device_model(const std::string& name) {
  for (const DeviceModel& device : devices()) {
    if (device.name == name) {
      return device;
    }
  }
  throw InvalidInput(
      fmt::format("no device model '{}'{}", name, suggestion(name, device_model_names())));
}

Profile analytic_profile(const ModelSpec& model,
                         const DeviceModel& device,
                         const AnalyticOptions& options) {
  constexpr double kAdamBytes = 7 * 4;  // weight, gradient, two moments in; weight and moments out
  check(device);
  check_degrees("tensor_parallel", options.tensor_parallel);
  check_degrees("context_parallel", options.context_parallel);
  const std::set<int> tensor(options.tensor_parallel.begin(), options.tensor_parallel.end());
  const std::set<int> context(options.context_parallel.begin(), options.context_parallel.end());
  Profile profile;
  profile.device = device.name;
  profile.dtype = device.dtype;
  profile.source = "analytic";
  profile.model_digest = shape_digest(model);
  profile.link = device.link;
  profile.reduce_bytes_per_second = device.link.bytes_per_second / 2;
  profile.optimizer_ns_per_parameter = kAdamBytes / device.memory_bytes_per_second * 1e9;
  for (int module = 0; module < model.num_modules(); ++module) {
    for (const int t : tensor) {
      if (!sharding_obstacle(model, module, t).empty()) {
        continue;
      }
      for (const int c : context) {
        // The first layer represents its kind.
        std::set<LayerKind> seen;
        for (int layer = 0; layer < num_layers(model, module); ++layer) {
          if (seen.insert(layer_kind(model, module, layer)).second) {
            profile.layers.push_back(layer_profile(model, device, module, layer, t, c));
          }
        }
      }
    }
  }
  return profile;
}

}  // namespace entrain
