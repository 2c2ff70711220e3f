#include "entrain/engine/data/packed_pixels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/data/patches.h"

namespace entrain::engine {
namespace {

struct PatchShape {
  std::size_t area;    // pixels of a frame of a patch
  std::size_t frames;  // of a patch
};

PatchShape patch_shape(const EncoderSpec& encoder) {
  const auto side = static_cast<std::size_t>(encoder.patch_size);
  return {side * side, static_cast<std::size_t>(encoder.temporal_patch_size)};
}

// [frame of a channel of a patch] whether all frames of each channel are equal, in all patches.
bool has_equal_frames(const float* values, std::size_t count, PatchShape shape) {
  const std::size_t channel = shape.area * shape.frames;
  for (std::size_t begin = 0; begin < count; begin += channel) {
    for (std::size_t frame = 1; frame < shape.frames; ++frame) {
      if (std::memcmp(values + begin,
                      values + begin + frame * shape.area,
                      shape.area * sizeof(float)) != 0) {
        return false;
      }
    }
  }
  return true;
}

// Finds the byte of a channel's values.
class ByteFinder {
 public:
  explicit ByteFinder(const std::array<float, 256>& values)
      : values_(values), first_(values[0]), step_((values[255] - values[0]) / 255.0F) {}

  // Whether `value` is one of them.
  bool find(float value, char& byte) const {
    const float near = (value - first_) / step_;
    if (!(near > -1.0F && near < 256.0F)) {
      return false;
    }
    const auto place = static_cast<std::size_t>(std::clamp<long>(std::lrintf(near), 0L, 255L));
    byte = static_cast<char>(place);
    return std::memcmp(&values_[place], &value, sizeof(float)) == 0;
  }

 private:
  const std::array<float, 256>& values_;
  float first_;
  float step_;
};

}  // namespace

std::optional<PackedPixels> packed(const SegmentData& segment, const ModelSpec& model, int module) {
  const EncoderSpec& encoder = model.encoders.at(static_cast<std::size_t>(module));
  const PatchShape shape = patch_shape(encoder);
  const at::Tensor input = segment.input.contiguous();
  const auto* values = input.const_data_ptr<float>();
  const auto count = static_cast<std::size_t>(input.numel());
  const bool equal = has_equal_frames(values, count, shape);
  const std::array<std::array<float, 256>, 3> table = normalised_values(encoder);
  const std::array<ByteFinder, 3> finders = {
      ByteFinder(table[0]), ByteFinder(table[1]), ByteFinder(table[2])};

  PackedPixels pixels;
  pixels.module = module;
  pixels.rows = segment.rows;
  pixels.columns = segment.columns;
  pixels.frames = equal ? 1 : encoder.temporal_patch_size;
  const std::size_t kept = shape.area * static_cast<std::size_t>(pixels.frames);
  const std::size_t channel = shape.area * shape.frames;
  pixels.values.resize(count / channel * kept);
  char* byte = pixels.values.data();
  for (std::size_t begin = 0, number = 0; begin < count; begin += channel, ++number) {
    const ByteFinder& finder = finders[number % 3];
    for (std::size_t i = 0; i < kept; ++i) {
      if (!finder.find(values[begin + i], *byte++)) {
        return std::nullopt;
      }
    }
  }
  return pixels;
}

SegmentData unpacked(const PackedPixels& pixels, const ModelSpec& model) {
  const auto modules = std::ssize(model.encoders);
  const bool known =
      pixels.module >= 0 && pixels.module < modules &&
      model.encoders[static_cast<std::size_t>(pixels.module)].modality == Modality::kVision;
  if (!known) {
    throw InvalidInput(concat("pixels of module ", pixels.module, ", which reads none"));
  }
  const EncoderSpec& encoder = model.encoders[static_cast<std::size_t>(pixels.module)];
  const PatchShape shape = patch_shape(encoder);
  const auto frames = static_cast<std::size_t>(std::max(0, pixels.frames));
  const std::size_t kept = shape.area * frames;
  if ((frames != 1 && frames != shape.frames) || pixels.values.size() % (3 * kept) != 0) {
    throw InvalidInput(concat(pixels.values.size(),
                              " bytes of ",
                              pixels.frames,
                              " frames are no patches of encoder '",
                              encoder.name,
                              "'"));
  }
  const std::array<std::array<float, 256>, 3> table = normalised_values(encoder);
  SegmentData segment;
  segment.rows = pixels.rows;
  segment.columns = pixels.columns;
  const std::size_t patches = pixels.values.size() / (3 * kept);
  segment.input =
      at::empty({static_cast<std::int64_t>(patches), patch_values(encoder)}, at::kFloat);
  float* value = segment.input.mutable_data_ptr<float>();
  const auto* byte = reinterpret_cast<const std::uint8_t*>(pixels.values.data());
  for (std::size_t part = 0; part < 3 * patches; ++part, byte += kept) {
    const std::array<float, 256>& values = table[part % 3];
    for (std::size_t i = 0; i < kept; ++i) {
      *value++ = values[byte[i]];
    }
    for (std::size_t frame = frames; frame < shape.frames; ++frame) {
      value = std::copy_n(value - shape.area, shape.area, value);
    }
  }
  return segment;
}

}  // namespace entrain::engine
