// PNG and JPEG images: their size from the header alone, and their pixels, by libpng and libjpeg.
//
// That a file is there to its end is checked here, since they only find out by decoding it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/dataset/bytes_at.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// Greater images are refused before any memory is taken for them.
inline constexpr std::int64_t kMaxImagePixels = 1LL << 27;

// Stored width and height. EXIF orientation is not applied. The format is told by the content, not
// by a file name. A prefix of the file is enough if it reaches 33 bytes of a PNG, the first scan of
// a JPEG.
//
// Throws  InvalidInput naming `where`: neither PNG nor JPEG, a damaged header, more than
//         kMaxImagePixels pixels, CMYK or lossless or arithmetic-coded JPEG.
ImageSize image_size(std::string_view bytes, const std::string& where);

// Whether a file of `size` bytes is there to its end, without decoding it: every chunk of a PNG
// lies inside and the last one is IEND; a JPEG has scans and an end marker behind them. Bytes
// behind the end are left alone, as decoders do.
//
// Requires  image_size() takes its beginning.
// Throws    InvalidInput naming `where` and what is missing.
// Cost      a read for each chunk of a PNG; of a JPEG its last 64 bytes, or all of it where bytes
//           other than padding follow the end marker.
void check_image_end(std::int64_t size, const BytesAt& bytes, const std::string& where);

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
