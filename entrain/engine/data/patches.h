// From a decoded image to the vision encoder's input.
#pragma once

#include <array>

#include <ATen/ATen.h>

#include "entrain/core/dataset/image.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/vision_sizes.h"

#include "entrain/engine/data/step_data.h"

namespace entrain::engine {

// A decoded image in the sizes that its segments are cut from.
struct ResizedImage {
  DecodedImage grid;   // all tiles of the grid, or the only segment
  DecodedImage whole;  // the image in the size of a tile; empty if tiles.whole is false
  ImageTiles tiles;
};

// Resizes by encoder.resize_filter (with antialiasing, clamped to the range of pixels; images of
// the size are left as they are): to encoder_image_size(), with `center_crop` by the shorter side
// and cut to the centre, or to image_tiles(). `alone`: as there.
//
// Throws    InvalidInput when smart_resize() or image_tiles() refuses the size.
// Source    Of tiles: Idefics3 resizes to the longest edge, then to the grid, and the grid to the
//           whole image's tile; GotOcr2 resizes the image itself to both; LLaVA-NeXT resizes it to
//           what fits into the canvas, black around it, and to the tile. LLaVA-OneVision pads
//           images that are not cut to squares, in the mean colour.
ResizedImage resize_image(DecodedImage image, const EncoderSpec& encoder, bool alone = true);

// Normalises channels to (x / 255 - pixel_mean) / pixel_deviation and cuts into patches.
//
// Shapes    result: [rows · columns, 3 · temporal_patch_size · patch_size²] float32; a patch is [3,
//           temporal_patch_size, patch_size, patch_size] flattened, of equal frames; patches are in
//           merge blocks (see SegmentGrid in layers.h).
// Requires  0 <= tile < image.tiles.count(); with kAnyResolution 0, which is all tiles, the whole
//           image first.
SegmentData patches_of(const ResizedImage& image, std::int64_t tile, const EncoderSpec& encoder);

// The same of two frames of one size, already resized to a multiple of merge blocks.
SegmentData patches_of_frames(const DecodedImage& first,
                              const DecodedImage& second,
                              const EncoderSpec& encoder);

// What normalisation makes of the values of pixels.
//
// Shapes    result: [channel][value in [0, 255]]
std::array<std::array<float, 256>, 3> normalised_values(const EncoderSpec& encoder);

// The result for a white image that is read in this size.
SegmentData white_patches(ImageSize size, const EncoderSpec& encoder);

// Shapes    frames: each [3, rows · patch_size, columns · patch_size] float32; rows and columns are
//           divisible by merge_size. result: [rows · columns, 3 · frames · patch_size²]
at::Tensor cut_patches(at::TensorList frames, int patch_size, int merge_size);

}  // namespace entrain::engine
