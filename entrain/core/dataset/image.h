// PNG, JPEG, WebP and GIF images: their size from headers alone, and their pixels.
//
// libpng, libjpeg, libwebp and giflib decode. That a file is there to its end is checked here,
// since most of them only find out by decoding it. The format is told by the content, not by a file
// name.
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

// Width and height as shown of an image of `size` bytes, which is there to its end. Nothing is
// decoded.
//
// Size         EXIF orientation is applied: 5 to 8 swap width and height. Of an animation the
//              canvas; of a GIF with what its first frame covers beyond it.
// Orientation  of a JPEG's APP1 segments before its first scan, a PNG's last eXIf chunk, a WebP's
//              EXIF chunk. A damaged block counts as far as it is sound, and one without
//              orientation is upright. XMP is not read.
// End          PNG: every chunk is inside the file and the last one is IEND. JPEG: scans and an end
//              marker behind them. WebP: the file holds what its RIFF header claims, in whole
//              chunks. GIF: whole blocks up to the trailer. Bytes behind the end are left alone, as
//              decoders do.
//
// Throws  InvalidInput naming `where`: another format, a damaged header, more than kMaxImagePixels
//         pixels, lossless or arithmetic-coded JPEG, a missing end.
// Cost    reads 33 bytes of a PNG and a few of each chunk; the first 64 KiB of a JPEG, or all of it
//         where its first scan begins later, and its last 64 bytes, or all of it where bytes other
//         than padding follow the end marker; 30 bytes of a WebP and a few of each chunk; all of a
//         GIF, whose blocks say only where the next one is.
ImageSize image_size(const BytesAt& bytes, std::int64_t size, const std::string& where);

struct DecodedImage {
  ImageSize size;
  std::vector<std::uint8_t> rgb;  // [height, width, 3], 8 bits a channel
};

// Decodes an image to RGB, upright by its EXIF orientation. Gamma and colour profiles are not
// applied. Equal to Pillow's exif_transpose() and convert("RGBA") over white, or convert("RGB")
// where nothing is transparent, but for 16 bits:
//
// Alpha      is blended over white, rounded to nearest; palettes and greys become RGB.
// 16 bits    become 8, rounded to nearest; Pillow cuts them off.
// CMYK JPEG  (and YCCK) holds inverted values, as Adobe's programs write them, whatever its
//            markers say: red is stored cyan times stored black over 255, rounded to nearest.
// Animation  the first frame on its canvas: of a WebP transparent around it; of a GIF filled with
//            its transparent colour, or with colour 0 where it has none; an APNG's default image.
// GIF        a frame without palette, or whose palette is grey i at i, is grey.
//
// Throws  InvalidInput naming `where`: whatever image_size() refuses, and damaged or missing data.
// Cost    7 bytes of memory per pixel at most, beside the decoder's own.
DecodedImage decode_image(std::string_view bytes, const std::string& where);

}  // namespace entrain
