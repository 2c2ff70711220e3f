// WebP images. Their RIFF header claims as much as there is, or few changed ones would get past it.
#include "tests/fuzz/images.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  constexpr std::size_t kHead = 8;  // not counted in the claim
  std::string bytes = fuzz::beginning_with("RIFF", fuzz::text_of(data, size));
  if (size > 2 * kHead) {
    bytes.replace(kHead, 4, "WEBP");
    for (std::size_t i = 0; data[size - 1] % 8 != 0 && i < 4; ++i) {
      bytes[4 + i] = static_cast<char>((size - kHead) >> (8 * i));
    }
  }
  fuzz::try_image(bytes);
  return 0;
}
