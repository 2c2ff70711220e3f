// Resizing of images as Pillow does it.
#pragma once

#include "entrain/core/dataset/image.h"
#include "entrain/core/spec/model.h"

namespace entrain {

// Bicubic (a = -1/2) or Lanczos (a = 3) with antialiasing: two passes, columns of a row first, each
// rounded and clipped to 8 bits, with weights of 22 bits after the point. Bit for bit Pillow's
// Image.resize() up to version 12.3; 13.0 begins with rows where one side grows and the other
// shrinks. An image that has the size already is returned as it is.
//
// Requires  sides >= 1 on both sides.
// Cost      O(pixels of the result × the filter's width) after a pass over the rows that it reads;
//           the filter is 4 or 6 pixels wide, and as many times wider as the image shrinks.
DecodedImage resize(const DecodedImage& image, ImageSize size, ResizeFilter filter);

}  // namespace entrain
