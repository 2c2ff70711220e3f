#include <array>
#include <cstddef>

#include "entrain/core/dataset/image_formats.h"

namespace entrain {
namespace {

// Numbers of a TIFF file, in the byte order that its first two bytes state.
class TiffBytes {
 public:
  explicit TiffBytes(std::string_view bytes)
      : bytes_(bytes), little_endian_(bytes.starts_with("II")) {}

  [[nodiscard]] bool has(std::uint64_t offset, std::uint64_t count) const {
    return offset <= bytes_.size() && count <= bytes_.size() - offset;
  }

  // Requires  has(offset, count).
  [[nodiscard]] std::uint64_t number(std::uint64_t offset, std::uint64_t count) const {
    const std::string_view number = bytes_.substr(offset, count);
    return static_cast<std::uint64_t>(little_endian_ ? little_endian(number) : big_endian(number));
  }

 private:
  std::string_view bytes_;
  bool little_endian_;
};

constexpr std::uint64_t kOrientationTag = 0x0112;
constexpr std::uint64_t kEntrySize = 12;  // tag, type, count, and the value or its place
// Bytes of a value of each type; 0: no such type.
constexpr std::array<std::uint64_t, 14> kValueBytes = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4};

}  // namespace

int exif_orientation(std::string_view block) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  while (block.starts_with(kPrefix)) {
    block.remove_prefix(kPrefix.size());
  }
  const TiffBytes tiff(block);
  if ((!block.starts_with("II") && !block.starts_with("MM")) || !tiff.has(0, 8) ||
      tiff.number(2, 2) != 42) {
    return 1;
  }
  const std::uint64_t directory = tiff.number(4, 4);
  const std::uint64_t entries = tiff.has(directory, 2) ? tiff.number(directory, 2) : 0;
  std::uint64_t orientation = 1;
  for (std::uint64_t i = 0; i < entries; ++i) {
    const std::uint64_t entry = directory + 2 + i * kEntrySize;
    if (!tiff.has(entry, kEntrySize)) {
      break;
    }
    const std::uint64_t type = tiff.number(entry + 2, 2);
    const std::uint64_t count = tiff.number(entry + 4, 4);
    const std::uint64_t value_bytes = type < kValueBytes.size() ? kValueBytes[type] : 0;
    const std::uint64_t bytes = count * value_bytes;
    if (bytes > 4 && !tiff.has(tiff.number(entry + 8, 4), bytes)) {
      break;
    }
    const bool integer = type == 1 || type == 3 || type == 4;
    if (tiff.number(entry, 2) == kOrientationTag && integer && count == 1) {
      orientation = tiff.number(entry + 8, value_bytes);
    }
  }
  return orientation >= 1 && orientation <= 8 ? static_cast<int>(orientation) : 1;
}

}  // namespace entrain
