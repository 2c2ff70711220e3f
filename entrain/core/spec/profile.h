// Measured or analytic layer costs: T = a·attention_pairs + b·tokens + c, in nanoseconds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/spec/cluster.h"
#include "entrain/core/spec/model.h"

namespace entrain {

// c is paid once per launch (an operation on a packed microbatch), a and b per unit of work. For
// the output head `tokens` are target tokens. All >= 0.
struct CostCurve {
  double per_pair_ns = 0;
  double per_token_ns = 0;
  double per_launch_ns = 0;
  double fit_error = 0;   // largest relative error over the measured points; 0 for analytic
  double fit_median = 0;  // median of those errors
};

// The range of microbatches on which a layer's entry was measured. All 0 if nothing was measured.
struct MeasuredRange {
  double least_tokens = 0;  // output head: target tokens
  double most_tokens = 0;
  double most_pairs = 0;  // 0 for layers without attention
  [[nodiscard]] bool known() const { return most_tokens > 0; }
};

// One layer on a lane of tensor_parallel × context_parallel devices. Pairs and tokens are those of
// the lane's whole microbatch, times include the collectives of its devices, and bytes are
// those of one device.
struct LayerProfile {
  std::string module;
  LayerKind kind = LayerKind::kDecoder;
  int tensor_parallel = 1;
  int context_parallel = 1;
  CostCurve forward;
  CostCurve backward_input;
  CostCurve backward_weight;
  // Extra time of a backward with deferred weight gradients over a whole one: the second half
  // reads again what left the caches. All 0 if not measured.
  CostCurve split;
  // For a recomputed layer: its second forward, just before its backward. All 0
  // if not measured.
  CostCurve recompute;
  double activation_bytes_per_token = 0;  // kept from forward to backward
  double output_bytes_per_token = 0;      // of the stage's message, per token of the module
  double parameter_bytes = 0;             // of one device's share; 0 if not measured
  double optimizer_bytes = 0;             // likewise, of its optimizer's state
  MeasuredRange range;
  double spread = 0;  // median over points of (upper - lower quartile) / median of a point's times
};

struct Profile {
  std::string device;
  std::string dtype = "float32";
  std::string source;        // "measured" or "analytic"
  std::string model_digest;  // shape_digest() of the model it was made for; may be empty
  std::string command;       // how it was made
  std::string software;      // "torch 2.13.0+cpu"; empty for analytic
  int threads = 1;
  std::vector<LayerProfile> layers;
  LinkSpec link;                       // between neighbouring lanes
  double reduce_bytes_per_second = 0;  // all-reduce over replicas; 0 = infinite
  double optimizer_ns_per_parameter = 0;
};

// The entry at exactly these degrees.
// Throws  InvalidInput when there is none; it says at which degrees the module has entries.
const LayerProfile& find_layer(const Profile& profile,
                               const std::string& module,
                               LayerKind kind,
                               int tensor_parallel = 1,
                               int context_parallel = 1);

Profile read_profile(const std::filesystem::path& path);
Profile profile_from_json(const Json& document, const std::string& where);
Json to_json(const Profile& profile);
// A module needs every layer kind at each pair of degrees at which it has any, and at least one
// pair; degrees may differ between modules, and degree 1 is not required.
//
// Throws  InvalidInput when the profile was made for layers of other shapes, lacks a layer kind,
//         has one twice, or holds a cost that is negative or not finite.
void validate(const Profile& profile, const ModelSpec& model, const std::string& where);

}  // namespace entrain
