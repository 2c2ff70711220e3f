// Patches of pixels as bytes, a quarter of their size or, with two equal frames, an eighth, for a
// feed: a patch holds what normalisation makes of 256 values a channel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "entrain/core/spec/model.h"

#include "entrain/engine/data/step_data.h"

namespace entrain::engine {

struct PackedPixels {
  int module = 0;            // whose encoder's patches they are
  std::int64_t rows = 0;     // as in SegmentData
  std::int64_t columns = 0;  // the same
  // Frames of each patch that are in `values`: its encoder's, or 1 if they are equal.
  int frames = 1;
  std::string values;  // [patches, 3 channels, frames, patch_size²], one byte each
};

// Nothing if a value is none of normalised_values(): the segment is sent as it is then.
//
// Requires  `module` is a vision encoder of the model.
// Cost      about a nanosecond a value.
std::optional<PackedPixels> packed(const SegmentData& segment, const ModelSpec& model, int module);

// The segment again, to the last bit.
//
// Throws    InvalidInput: no such vision encoder, or sizes that are not its patches'.
SegmentData unpacked(const PackedPixels& pixels, const ModelSpec& model);

}  // namespace entrain::engine
