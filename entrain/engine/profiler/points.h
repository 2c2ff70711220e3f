// Measured points: every recorded time, before any fit.
//
// Read first: MeasuredPoint. A running measurement writes them beside its output, so that a
// killed run can continue. They can also be kept for later analysis.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrain/core/base/json.h"
#include "entrain/core/spec/model.h"

namespace entrain::engine {

// One packed microbatch through one layer. Times in nanoseconds, one for each repeat.
struct MeasuredPoint {
  double tokens = 0;
  double attention_pairs = 0;
  std::int64_t num_segments = 1;
  std::vector<double> forward;         // with trainable weights
  std::vector<double> backward;        // with trainable weights, both gradients
  std::vector<double> backward_input;  // with frozen weights
  std::vector<double>
      backward_halves;            // both gradients, weight gradients after all input gradients
  std::vector<double> recompute;  // forward again after one without a graph; may be empty
};

// One layer at one degree of tensor parallelism.
struct MeasuredLayer {
  std::string module;
  LayerKind kind = LayerKind::kDecoder;
  int tensor_parallel = 1;
  bool complete = false;  // no more repeats needed
  double activation_bytes_per_token = 0;
  double output_bytes_per_token = 0;
  double parameter_bytes = 0;
  std::int64_t parameters = 0;
  std::vector<MeasuredPoint> points;
  std::vector<std::string> skipped;  // sizes left out, and why
};

struct MeasuredPoints {
  Json settings;  // measurement settings: a run continues only with equal settings
  double seconds = 0;
  std::vector<MeasuredLayer> layers;
};

Json to_json(const MeasuredPoints& points);
// Throws  InvalidInput for other versions, unknown keys, or times that are not above 0.
MeasuredPoints points_from_json(const Json& document, const std::string& where);

// Points of an earlier run; none if there is no such file.
//
// Throws  InvalidInput if the file was measured with other settings; it names one that differs.
MeasuredPoints resume_points(const std::filesystem::path& path, const Json& settings);

}  // namespace entrain::engine
