// PNG images. Chunks get the checksums that they should have, or few changed ones would get past
// them.
#include <zlib.h>

#include "tests/fuzz/images.h"

namespace entrain::fuzz {
namespace {

constexpr std::size_t kAround = 12;  // bytes of a chunk beside its content: length, kind, checksum

void fix_chunks(std::string& bytes) {
  auto* data = reinterpret_cast<unsigned char*>(bytes.data());
  std::size_t chunk = 8;
  while (chunk + kAround <= bytes.size()) {
    const std::size_t length = std::size_t{data[chunk]} << 24U |
                               std::size_t{data[chunk + 1]} << 16U |
                               std::size_t{data[chunk + 2]} << 8U | data[chunk + 3];
    if (length > bytes.size() - chunk - kAround) {
      return;
    }
    const uLong checksum = ::crc32_z(0, data + chunk + 4, length + 4);
    for (std::size_t i = 0; i < 4; ++i) {
      data[chunk + 8 + length + i] = static_cast<unsigned char>(checksum >> (24 - 8 * i));
    }
    chunk += kAround + length;
  }
}

}  // namespace
}  // namespace entrain::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  std::string bytes = fuzz::beginning_with("\x89PNG\r\n\x1A\n", fuzz::text_of(data, size));
  if (size > 0 && data[size - 1] % 8 != 0) {
    fuzz::fix_chunks(bytes);
  }
  fuzz::try_image(bytes);
  return 0;
}
