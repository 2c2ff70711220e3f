// Measured points: every time that was taken, before anything is fitted to it.
//
// Read first: MeasuredPoint. A profile that is being made keeps them beside its output, so that a
// run that was killed goes on where it stood; who wants them can keep them for good.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

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
  std::vector<double> recompute;  // forward again after one that kept nothing; may be empty
};

// One layer at one degree of tensor parallelism.
struct MeasuredLayer {
  std::string module;
  LayerKind kind = LayerKind::kDecoder;
  int tensor_parallel = 1;
  bool complete = false;  // no more repeats wanted
  double activation_bytes_per_token = 0;
  double output_bytes_per_token = 0;
  double parameter_bytes = 0;
  std::int64_t parameters = 0;
  std::vector<MeasuredPoint> points;
  std::vector<std::string> skipped;  // sizes left out, and why
};

struct MeasuredPoints {
  Json settings;  // what they were measured with: only equal settings may go on
  double seconds = 0;
  std::vector<MeasuredLayer> layers;
};

Json to_json(const MeasuredPoints& points);
// Throws  InvalidInput for other versions, unknown keys, or times that are not above 0.
MeasuredPoints points_from_json(const Json& document, const std::string& where);

// Points of an earlier run; none where there is no such file.
//
// Throws  InvalidInput when the file was measured with other settings; it names one that differs.
MeasuredPoints resume_points(const std::filesystem::path& path, const Json& settings);

}  // namespace entrain::engine
