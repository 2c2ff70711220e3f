#include "entrain/core/cost/analytic.h"

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

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
       .efficiency = 0.5,
       .launch_seconds = 50e-6,
       .link = {.latency = microseconds(10), .bytes_per_second = 31.5e9}},
      // SXM5, without sparsity; NVLink 4 in one direction.
      {.name = "h100",
       .dtype = "bfloat16",
       .peak_flops = 989.4e12,
       .memory_bytes_per_second = 3.35e12,
       .efficiency = 0.5,
       .launch_seconds = 50e-6,
       .link = {.latency = microseconds(10), .bytes_per_second = 450e9}},
  };
  return kDevices;
}

// A pre-norm transformer layer with rotary positions and a gated MLP.
LayerWork transformer_work(
    double hidden, double query, double key, double intermediate, double bytes) {
  LayerWork work;
  const double weights =
      hidden * query + 2 * hidden * key + query * hidden + 3 * hidden * intermediate;
  work.matrix_flops = 2 * weights;
  work.attention_flops = 4 * query;
  const double norms = 2 * 2 * hidden;
  const double residuals = 2 * 3 * hidden;
  const double rotary = 2 * (query + key);
  const double gate = 3 * intermediate;
  work.moved_bytes = (norms + residuals + rotary + gate) * bytes;
  // Inputs and results of both norms, queries, keys, values, attention's result, the MLP's gate, up
  // and product.
  work.activation_bytes = (4 * hidden + 2 * query + 2 * key + 3 * intermediate) * bytes;
  work.output_bytes = hidden * bytes;
  return work;
}

LayerWork projector_work(const EncoderSpec& encoder, double llm_hidden, double bytes) {
  const double merge = encoder.modality == Modality::kVision
                           ? static_cast<double>(encoder.merge_size) * encoder.merge_size
                           : 2.0;
  const double hidden = encoder.hidden;
  const double merged = hidden * merge;
  LayerWork work;
  work.matrix_flops = 2 * (merged * merged + merged * llm_hidden) / merge;
  // The norm before, the activation between the two matrices.
  work.moved_bytes = (2 * hidden + 2 * merged / merge) * bytes;
  work.activation_bytes = (2 * hidden + 2 * merged / merge) * bytes;
  work.output_bytes = llm_hidden / merge * bytes;
  return work;
}

LayerWork patch_embedding_work(const EncoderSpec& encoder, double bytes) {
  const double pixels = 3.0 * encoder.patch_size * encoder.patch_size;
  LayerWork work;
  work.matrix_flops = 2 * pixels * encoder.hidden;
  work.activation_bytes = pixels * bytes;
  work.output_bytes = encoder.hidden * bytes;
  return work;
}

LayerWork audio_embedding_work(const EncoderSpec& encoder, double bytes) {
  constexpr double kMelBands = 80;
  constexpr double kKernel = 3;
  constexpr double kFrames = 2;  // of the first convolution per token, which is the second's stride
  const double hidden = encoder.hidden;
  LayerWork work;
  work.matrix_flops = 2 * (kFrames * kMelBands * kKernel * hidden + hidden * kKernel * hidden);
  // An activation behind each convolution.
  work.moved_bytes = 2 * (kFrames + 1) * hidden * bytes;
  work.activation_bytes = (kFrames * kMelBands + 2 * (kFrames + 1) * hidden) * bytes;
  work.output_bytes = hidden * bytes;
  return work;
}

LayerWork token_embedding_work(double hidden, double bytes) {
  constexpr double kTokenIdBytes = 8;
  LayerWork work;
  work.moved_bytes = 2 * hidden * bytes;
  work.weight_moved_bytes = 3 * hidden * bytes;
  work.activation_bytes = kTokenIdBytes;
  work.output_bytes = hidden * bytes;
  return work;
}

LayerWork output_head_work(double hidden, double vocabulary, double bytes) {
  LayerWork work;
  work.matrix_flops = 2 * hidden * vocabulary;
  work.moved_bytes = (2 * hidden + 2 * vocabulary) * bytes;
  work.activation_bytes = (2 * hidden + vocabulary) * bytes;
  return work;
}

CostCurve curve(const DeviceModel& device,
                double pair_flops,
                double token_flops,
                double token_bytes) {
  const double flops_per_ns = device.peak_flops * device.efficiency * 1e-9;
  CostCurve result;
  result.per_pair_ns = pair_flops / flops_per_ns;
  result.per_token_ns =
      token_flops / flops_per_ns + token_bytes / device.memory_bytes_per_second * 1e9;
  result.per_launch_ns = device.launch_seconds * 1e9;
  return result;
}

double bytes_of_number(const std::string& dtype) {
  if (dtype == "float32") {
    return 4;
  }
  if (dtype == "bfloat16" || dtype == "float16") {
    return 2;
  }
  throw InvalidInput(
      fmt::format("device model of dtype '{}'; allowed: float32, bfloat16, float16", dtype));
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

LayerWork layer_work(const ModelSpec& model, int module, int layer, double bytes) {
  const LlmSpec& llm = model.llm;
  const LayerKind kind = layer_kind(model, module, layer);
  if (module == model.llm_module()) {
    switch (kind) {
      case LayerKind::kTokenEmbedding:
        return token_embedding_work(llm.hidden, bytes);
      case LayerKind::kOutputHead:
        return output_head_work(llm.hidden, llm.vocab_size, bytes);
      default:
        return transformer_work(llm.hidden,
                                static_cast<double>(llm.num_heads) * llm.head_dim,
                                static_cast<double>(llm.num_kv_heads) * llm.head_dim,
                                llm.intermediate,
                                bytes);
    }
  }
  const EncoderSpec& encoder = model.encoders[static_cast<std::size_t>(module)];
  switch (kind) {
    case LayerKind::kPatchEmbedding:
      return patch_embedding_work(encoder, bytes);
    case LayerKind::kAudioEmbedding:
      return audio_embedding_work(encoder, bytes);
    case LayerKind::kProjector:
      return projector_work(encoder, llm.hidden, bytes);
    default:
      return transformer_work(
          encoder.hidden, encoder.hidden, encoder.hidden, encoder.intermediate, bytes);
  }
}

Profile analytic_profile(const ModelSpec& model, const DeviceModel& device) {
  constexpr double kAdamBytes = 7 * 4;  // weight, gradient, two moments in; weight and moments out
  check(device);
  const double bytes = bytes_of_number(device.dtype);
  Profile profile;
  profile.device = device.name;
  profile.dtype = device.dtype;
  profile.source = "analytic";
  profile.model_digest = shape_digest(model);
  profile.link = device.link;
  profile.reduce_bytes_per_second = device.link.bytes_per_second / 2;
  profile.optimizer_ns_per_parameter = kAdamBytes / device.memory_bytes_per_second * 1e9;
  for (int module = 0; module < model.num_modules(); ++module) {
    // The first transformer layer stands for all: embedding, transformer, projector or head.
    for (const int layer : {0, 1, num_layers(model, module) - 1}) {
      const LayerWork work = layer_work(model, module, layer, bytes);
      LayerProfile entry;
      entry.module = module_name(model, module);
      entry.kind = layer_kind(model, module, layer);
      entry.forward = curve(device, work.attention_flops, work.matrix_flops, work.moved_bytes);
      entry.backward_input =
          curve(device, 2 * work.attention_flops, work.matrix_flops, 2 * work.moved_bytes);
      entry.backward_weight = curve(device, 0, work.matrix_flops, work.weight_moved_bytes);
      entry.activation_bytes_per_token = work.activation_bytes;
      entry.output_bytes_per_token = work.output_bytes;
      profile.layers.push_back(std::move(entry));
    }
  }
  return profile;
}

}  // namespace entrain
