// What the targets of image formats share: sizes from headers, their ends, and the pixels of images
// up to a size.
#pragma once

#include <algorithm>

#include "entrain/core/dataset/image.h"

#include "tests/fuzz/fuzz.h"

namespace entrain::fuzz {

inline void try_image(std::string_view bytes, std::int64_t max_pixels = 1 << 20) {
  const WatchedBytes watched(bytes);
  expect_result_or_refusal([&] {
    const ImageSize stated = image_size(watched.reader(), std::ssize(bytes), "image");
    if (std::int64_t{stated.width} * stated.height > max_pixels) {
      return;  // refused or decoded alike, only slower
    }
    const DecodedImage image = decode_image(bytes, "image");
    expect(image.size == stated, "the header's size is the decoder's");
    expect(std::ssize(image.rgb) == std::int64_t{3} * stated.width * stated.height,
           "three bytes a pixel");
  });
}

}  // namespace entrain::fuzz
