// From a decoded image to the vision encoder's input.
#pragma once

#include <ATen/ATen.h>

#include "entrain/core/dataset/image.h"
#include "entrain/core/spec/model.h"

#include "entrain/engine/data/step_data.h"

namespace entrain::engine {

// Resizes to encoder_image_size() (bicubic with antialiasing, clamped to the range of pixels;
// images of that size are left as they are), with `center_crop` by the shorter side and cut to the
// centre, normalises channels to (x / 255 - pixel_mean) / pixel_deviation and cuts into patches.
//
// Shapes    result: [rows · columns, 3 · temporal_patch_size · patch_size²] float32; a patch is [3,
//           temporal_patch_size, patch_size, patch_size] flattened, of equal frames; patches are in
//           merge blocks (see SegmentGrid in layers.h).
// Throws    InvalidInput when smart_resize() refuses the size.
SegmentData patches_of(const DecodedImage& image, const EncoderSpec& encoder);

// The result of patches_of() for a white image of this size.
SegmentData white_patches(ImageSize size, const EncoderSpec& encoder);

// Shapes    pixels: [3, rows · patch_size, columns · patch_size] float32; rows and columns are
//           divisible by merge_size. Every frame of a patch has the same pixels.
at::Tensor cut_patches(const at::Tensor& pixels, int patch_size, int merge_size, int frames = 1);

}  // namespace entrain::engine
