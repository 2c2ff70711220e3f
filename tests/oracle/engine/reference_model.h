// The model once more, as plainly as it can be written: one process, one sample at a time,
// attention by matrix products and softmax, one backward over the whole global batch.
//
// Read first: reference_step(). It knows nothing of stages, packing, slots or replicas and shares
// no layer code with the engine; what both agree on is the model itself.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/dataset/text.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/vision_sizes.h"

namespace entrain::oracle {

using NamedWeights = std::map<std::string, at::Tensor>;  // by Hugging Face name

// An image, or a window of audio.
struct ReferenceSegment {
  int module = 0;  // encoder it belongs to
  // Image: [rows·columns, patch_values()], merge blocks row by row. Audio: [mel frames, mel bands].
  at::Tensor input;
  std::int64_t rows = 0;           // patches; 0 for audio
  std::int64_t columns = 0;        // patches; 0 for audio
  std::int64_t tokens = 0;         // audio: attention masks those after them; 0: all
  std::int64_t feature_begin = 0;  // first position of its features in the sample's ids
  FeatureCanvas canvas = {};       // the tiles of an image, one after another in `input`
};

struct ReferenceSample {
  std::vector<ReferenceSegment> segments;  // by rising feature_begin
  std::vector<std::int64_t> ids;           // with placeholders where features go
  std::vector<TokenRange> targets;         // ids that are predicted, each from the position before
};

struct ReferenceResult {
  double loss = 0;  // mean cross-entropy over the target tokens of all samples
  std::int64_t target_tokens = 0;
  NamedWeights gradients;  // of `loss`, for every weight given; zeros where it has no influence
};

// Computes in the dtype of the weights; does not change them.
//
// Requires  `weights` holds every parameter of the model.
ReferenceResult reference_step(const ModelSpec& model,
                               const NamedWeights& weights,
                               std::span<const ReferenceSample> samples);

// The whole model's weights as its stages draw them from (seed, name): detached copies.
NamedWeights initial_weights(const ModelSpec& model, std::uint64_t seed);

}  // namespace entrain::oracle
