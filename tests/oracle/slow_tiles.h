// A plain rewrite of image_tiles(), step by step as the original processors run.
#pragma once

#include "entrain/core/spec/vision_sizes.h"

namespace entrain::oracle {

// By listing all grids and sorting them, or by cutting the resized image tile by tile.
ImageTiles slow_image_tiles(const EncoderSpec& encoder, ImageSize image);

}  // namespace entrain::oracle
