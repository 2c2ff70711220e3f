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

// An image's tiles: those of its grid row by row, and the whole image made as small as a tile.
// Without `whole` the grid is the image.
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
// columns, unless the image has no more than half of its pixels. kAnyResolution: of the canvases
// that which keeps most of the image's pixels, then that with the least rest; the whole image is
// before it. `alone`: the sample has no other image; else `single_image` leaves the whole image
// only.
//
// Throws  InvalidInput when a side is below 1 or above 2^24.
// Source  the image processors of Idefics3, InternVL (GotOcr2) and LLaVA-NeXT in transformers.
ImageTiles image_tiles(const EncoderSpec& encoder, ImageSize image, bool alone = true);
// Those that are segments of their own: all, but for kAnyResolution, where they are one segment.
ImageTiles tile_segments(const EncoderSpec& encoder, ImageSize image);

// kAnyResolution: what the projector makes of the features of an image's tiles. Those of the whole
// image come first, then rows of the canvas's features, each with a newline behind it; without a
// canvas one newline.
struct FeatureCanvas {
  ImageTiles tiles;  // `whole` is set
  // Of the features of the canvas's tiles, side by side, those that are not of padding.
  int top = 0;
  int left = 0;
  int rows = 0;
  int columns = 0;
  // To which they are resized, linearly along both sides; or the same.
  int resized_rows = 0;
  int resized_columns = 0;
  bool operator==(const FeatureCanvas&) const = default;
};

// Requires  kAnyResolution.
// Throws    as image_tiles(), and InvalidInput where features would be resized to none.
// Source    pack_image_features() of LLaVA-NeXT and LLaVA-OneVision in transformers.
FeatureCanvas feature_canvas(const EncoderSpec& encoder, ImageSize image, bool alone);
// Rows of the LLM that a segment with so arranged features fills.
std::int64_t canvas_features(const EncoderSpec& encoder, const FeatureCanvas& canvas);

// The image made as large as the canvas allows, its aspect ratio kept.
ImageSize fitted_size(ImageSize image, ImageSize canvas);

// The image with a longest edge of this many pixels. The other one is rounded down and then up to
// an even number.
//
// Requires  sides and longest_edge >= 1.
ImageSize longest_edge_size(ImageSize image, int longest_edge);

}  // namespace entrain
