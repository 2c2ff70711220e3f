// PNG and JPEG images: their size from the header alone, and their pixels.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/spec/sample.h"

namespace entrain {

// Greater images are refused before any memory is taken for them.
inline constexpr std::int64_t kMaxImagePixels = 1LL << 27;

// Stored width and height. EXIF orientation is not applied. The format is told by the content, not
// by a file name. A prefix of the file is enough if it reaches the size (33 bytes of a PNG, the
// first frame header of a JPEG).
//
// Throws  InvalidInput naming `where`: neither PNG nor JPEG, a damaged header, more than
//         kMaxImagePixels pixels, CMYK or lossless or arithmetic-coded JPEG.
ImageSize image_size(std::string_view bytes, const std::string& where);

struct DecodedImage {
  ImageSize size;
  std::vector<std::uint8_t> rgb;  // [height, width, 3], 8 bits a channel
};

// Decodes an image to RGB. Alpha is blended over white, 16 bits become 8, palettes and greys
// become RGB; gamma and colour profiles are not applied.
//
// Throws  InvalidInput naming `where`: whatever image_size() refuses, and damaged or missing data.
// Cost    7 bytes of memory per pixel at most, beside the decoder's own.
DecodedImage decode_image(std::string_view bytes, const std::string& where);

}  // namespace entrain
