// How image.h reads each format: a header and a decoder per format, each pair in a file of its own
// (image_png.cc, image_jpeg.cc, image_webp.cc, image_gif.cc), and what they share (image.cc,
// exif.cc).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/dataset/bytes_at.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

struct StoredImage {
  ImageSize size;                 // before it is turned upright
  int orientation = 1;            // EXIF: 1 to 8
  std::vector<std::uint8_t> rgb;  // [height, width, 3]; empty where only headers were read
};

// Size and orientation of a file of that format, which is there to its end; image_size() says how.
//
// Requires  the file begins as the format does.
// Throws    InvalidInput naming `where`, as image_size() does.
StoredImage read_png_header(const BytesAt& bytes, std::int64_t size, const std::string& where);
StoredImage read_jpeg_header(const BytesAt& bytes, std::int64_t size, const std::string& where);
StoredImage read_webp_header(const BytesAt& bytes, std::int64_t size, const std::string& where);
StoredImage read_gif_header(const BytesAt& bytes, std::int64_t size, const std::string& where);

// The same with pixels; decode_image() says how.
StoredImage decode_png(std::string_view bytes, const std::string& where);
StoredImage decode_jpeg(std::string_view bytes, const std::string& where);
StoredImage decode_webp(std::string_view bytes, const std::string& where);
StoredImage decode_gif(std::string_view bytes, const std::string& where);

// Throws  InvalidInput unless it has 1 to kMaxImagePixels pixels.
ImageSize checked_size(std::int64_t width, std::int64_t height, const std::string& where);

// c·a + white·(1 - a), rounded to nearest, of RGBA pixels.
std::vector<std::uint8_t> over_white(std::span<const std::uint8_t> rgba);

// Of an EXIF block, with or without "Exif\0\0" in front. 1 where it has none, and where another
// entry that is not inside the block comes before it.
int exif_orientation(std::string_view block);

}  // namespace entrain
