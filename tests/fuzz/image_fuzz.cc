// Images of every format: sizes from headers, their ends, and the pixels of images up to a million.
#include "entrain/core/dataset/image.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  constexpr std::int64_t kMaxPixels = 1 << 20;
  const std::string_view bytes = fuzz::text_of(data, size);
  const fuzz::WatchedBytes watched(bytes);
  fuzz::expect_result_or_refusal([&] {
    const ImageSize stated = image_size(watched.reader(), static_cast<std::int64_t>(size), "image");
    if (std::int64_t{stated.width} * stated.height > kMaxPixels) {
      return;  // refused or decoded alike, only slower
    }
    const DecodedImage image = decode_image(bytes, "image");
    fuzz::expect(image.size == stated, "the header's size is the decoder's");
    fuzz::expect(static_cast<std::int64_t>(image.rgb.size()) ==
                     std::int64_t{3} * stated.width * stated.height,
                 "three bytes a pixel");
  });
  return 0;
}
