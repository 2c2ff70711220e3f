// Sizes of images as vision encoders read them, and the tiles that some are cut into.
#pragma once

#include <cstdint>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// Height and width in pixels after Qwen's smart_resize: both sides rounded (halves to even) to
// multiples of `factor`, then, if height * width is outside [min_pixels, max_pixels], scaled by one
// factor and rounded down or up to multiples. A very narrow image keeps one multiple per side and
// may exceed max_pixels. With several frames (rounded to an even number, halves to a multiple of
// four) the limits are those of all of them.
//
// Requires  factor >= 1; 1 <= min_pixels <= max_pixels; frames >= 1.
// Throws  InvalidInput when a side is below 1 or above 2^24 or the aspect ratio exceeds 200.
// Source  Qwen2-VL image processor, Qwen3-VL video processor; golden values in workload_test.cc.
ImageSize smart_resize(ImageSize image,
                       int factor,
                       std::int64_t min_pixels,
                       std::int64_t max_pixels,
                       std::int64_t frames = 1);

// Pixels of an image as an encoder reads it: smart_resize()'s, or those of its table of positions.
//
// Throws  InvalidInput as smart_resize() does.
ImageSize encoder_image_size(const EncoderSpec& encoder, ImageSize image);

// An image's tiles, each a segment: those of its grid row by row, then the whole image made as
// small as a tile.
struct ImageTiles {
  int rows = 1;
  int columns = 1;
  bool whole = false;

  [[nodiscard]] int count() const { return rows * columns + (whole ? 1 : 0); }
  bool operator==(const ImageTiles&) const = default;
};

// kLongestEdge: longest_edge_size(), both sides then up to multiples of a tile's; more than one
// tile has the whole image behind it. kBestCanvas: of all grids of min_tiles to max_tiles tiles
// that with the nearest aspect ratio. Of equal ones the later, by number of tiles and then of
// columns, unless the image has no more than half of its pixels.
//
// Throws  InvalidInput when a side is below 1 or above 2^24.
// Source  the image processors of Idefics3 and InternVL (GotOcr2) in transformers.
ImageTiles image_tiles(const EncoderSpec& encoder, ImageSize image);

// The image with a longest edge of this many pixels. The other one is rounded down and then up to
// an even number.
//
// Requires  sides and longest_edge >= 1.
ImageSize longest_edge_size(ImageSize image, int longest_edge);

}  // namespace entrain
