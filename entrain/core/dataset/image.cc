#include "entrain/core/dataset/image.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>
#include <zlib.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr std::string_view kPngSignature("\x89PNG\r\n\x1A\n", 8);

unsigned byte_at(std::string_view bytes, std::size_t offset) {
  return static_cast<unsigned char>(bytes[offset]);
}
unsigned big_endian_16(std::string_view bytes, std::size_t offset) {
  return byte_at(bytes, offset) << 8U | byte_at(bytes, offset + 1);
}
std::uint32_t big_endian_32(std::string_view bytes, std::size_t offset) {
  return big_endian_16(bytes, offset) << 16U | big_endian_16(bytes, offset + 2);
}

[[noreturn]] void fail(const std::string& where, const std::string& message) {
  throw InvalidInput(fmt::format("{}: {}", where, message));
}

ImageSize checked_size(std::int64_t width, std::int64_t height, const std::string& where) {
  constexpr std::int64_t kMaxSide = 1'000'000;
  if (width < 1 || height < 1 || width > kMaxSide || height > kMaxSide ||
      width * height > kMaxImagePixels) {
    fail(where,
         fmt::format("an image of {}x{} pixels; allowed are 1 to {} pixels",
                     width,
                     height,
                     kMaxImagePixels));
  }
  return {static_cast<int>(width), static_cast<int>(height)};
}

bool png_depth_allowed(unsigned depth, unsigned colour) {
  switch (colour) {
    case 0:
      return depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16;
    case 3:
      return depth == 1 || depth == 2 || depth == 4 || depth == 8;
    case 2:
    case 4:
    case 6:
      return depth == 8 || depth == 16;
    default:
      return false;
  }
}

// Signature, then the IHDR chunk: length, type, 13 bytes, CRC over type and content.
ImageSize png_size(std::string_view bytes, const std::string& where) {
  constexpr std::size_t kHeaderEnd = 33;
  if (bytes.size() < kHeaderEnd) {
    fail(where, "damaged PNG: it ends inside its header");
  }
  if (big_endian_32(bytes, 8) != 13 || bytes.substr(12, 4) != "IHDR") {
    fail(where, "damaged PNG: its first chunk is not a header");
  }
  const auto crc = ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data()) + 12, 17);
  if (crc != big_endian_32(bytes, 29)) {
    fail(where, "damaged PNG: the header's checksum is wrong");
  }
  if (!png_depth_allowed(byte_at(bytes, 24), byte_at(bytes, 25)) || byte_at(bytes, 26) != 0 ||
      byte_at(bytes, 27) != 0 || byte_at(bytes, 28) > 1) {
    fail(where, "damaged PNG: impossible depth, colour type or method");
  }
  return checked_size(big_endian_32(bytes, 16), big_endian_32(bytes, 20), where);
}

bool is_frame_header(unsigned marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

ImageSize jpeg_frame_size(std::string_view segment, unsigned marker, const std::string& where) {
  if (marker > 0xC2) {
    fail(where,
         fmt::format("a JPEG of kind SOF{}; allowed are baseline, extended and progressive",
                     marker - 0xC0));
  }
  if (segment.size() < 8) {
    fail(where, "damaged JPEG: its frame header is too short");
  }
  const unsigned components = byte_at(segment, 7);
  if (byte_at(segment, 2) != 8) {
    fail(where, fmt::format("a JPEG of {} bits; allowed are 8", byte_at(segment, 2)));
  }
  if (components == 4) {
    fail(where, "a CMYK JPEG; allowed are grey and colour (convert it to RGB)");
  }
  if ((components != 1 && components != 3) || segment.size() != 8 + 3 * std::size_t{components}) {
    fail(where, "damaged JPEG: impossible number of components");
  }
  return checked_size(big_endian_16(segment, 5), big_endian_16(segment, 3), where);
}

// Walks the segments (FF, marker, length, content) up to the first frame header.
ImageSize jpeg_size(std::string_view bytes, const std::string& where) {
  std::size_t position = 2;
  while (true) {
    while (position < bytes.size() && byte_at(bytes, position) == 0xFF &&
           position + 1 < bytes.size() && byte_at(bytes, position + 1) == 0xFF) {
      ++position;  // fill bytes
    }
    if (position + 4 > bytes.size()) {
      fail(where, "damaged JPEG: it ends before its frame header");
    }
    const unsigned marker = byte_at(bytes, position + 1);
    const bool stands_alone = marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8);
    if (byte_at(bytes, position) != 0xFF || marker == 0 || marker == 0xD9 || marker == 0xDA) {
      fail(where, "damaged JPEG: no segment where one must begin");
    }
    if (stands_alone) {
      position += 2;
      continue;
    }
    const std::size_t length = big_endian_16(bytes, position + 2);
    if (length < 2 || length > bytes.size() - position - 2) {
      fail(where, "damaged JPEG: it ends inside a segment before its frame header");
    }
    if (is_frame_header(marker)) {
      return jpeg_frame_size(bytes.substr(position + 2, length), marker, where);
    }
    position += 2 + length;
  }
}

// Length, type, content and checksum, one chunk after another.
void check_png_end(std::int64_t size, const BytesAt& bytes, const std::string& where) {
  constexpr std::int64_t kAround = 12;  // bytes of a chunk beside its content
  std::int64_t position = 8;
  while (position + kAround <= size) {
    const std::string_view header = bytes(position, 8);
    const std::int64_t length = big_endian_32(header, 0);
    const bool last = header.substr(4, 4) == "IEND";
    if (length > size - position - kAround) {
      fail(where,
           fmt::format(
               "damaged PNG: it ends inside a chunk of {} bytes at byte {}", length, position));
    }
    if (last) {
      return;
    }
    position += kAround + length;
  }
  fail(where, "damaged PNG: it ends without its last chunk (IEND)");
}

// Moves `position`, in a scan's data, to the marker that ends it; false when there is none.
// Stuffing (FF 00) and restarts belong to the data.
bool skip_scan(std::string_view bytes, std::size_t& position) {
  while ((position = bytes.find('\xFF', position)) != std::string_view::npos &&
         position + 1 < bytes.size()) {
    const unsigned marker = byte_at(bytes, position + 1);
    const bool in_scan = marker == 0x00 || (marker >= 0xD0 && marker <= 0xD7);
    if (marker != 0xFF && !in_scan) {
      return true;
    }
    position += in_scan ? 2 : 1;
  }
  return false;
}

// Whether an end marker follows the scans: segments by their length, scans by their markers.
bool has_jpeg_end(std::string_view bytes) {
  std::size_t position = 2;
  bool scans = false;
  while (position + 1 < bytes.size() && byte_at(bytes, position) == 0xFF) {
    const unsigned marker = byte_at(bytes, position + 1);
    if (marker == 0xFF) {
      ++position;
      continue;
    }
    position += 2;
    if (marker == 0xD9) {
      return scans;
    }
    if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) {
      continue;
    }
    if (position + 2 > bytes.size()) {
      return false;
    }
    position += big_endian_16(bytes, position);
    if (marker == 0xDA) {
      scans = true;
      if (!skip_scan(bytes, position)) {
        return false;
      }
    }
  }
  return false;
}

void check_jpeg_end(std::int64_t size, const BytesAt& bytes, const std::string& where) {
  constexpr std::int64_t kTail = 64;
  constexpr std::string_view kPadding("\0\n\r \xFF", 5);
  const std::int64_t tail_size = std::min(kTail, size);
  std::string_view tail = bytes(size - tail_size, tail_size);
  tail = tail.substr(0, tail.find_last_not_of(kPadding) + 1);
  // No data of a scan look like an end marker.
  if (!tail.ends_with("\xFF\xD9") && !has_jpeg_end(bytes(0, size))) {
    fail(where, "damaged JPEG: it ends without its end marker");
  }
}

}  // namespace

void check_image_end(std::int64_t size, const BytesAt& bytes, const std::string& where) {
  const bool png = bytes(0, std::min<std::int64_t>(8, size)) == kPngSignature;
  if (png) {
    check_png_end(size, bytes, where);
  } else {
    check_jpeg_end(size, bytes, where);
  }
}

ImageSize image_size(std::string_view bytes, const std::string& where) {
  if (bytes.starts_with(kPngSignature)) {
    return png_size(bytes, where);
  }
  if (bytes.starts_with("\xFF\xD8\xFF")) {
    return jpeg_size(bytes, where);
  }
  fail(where, bytes.empty() ? "an empty image" : "neither a PNG nor a JPEG image");
}

}  // namespace entrain
