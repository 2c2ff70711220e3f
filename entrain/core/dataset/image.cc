#include "entrain/core/dataset/image.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

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

}  // namespace entrain
