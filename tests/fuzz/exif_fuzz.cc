// Blocks of EXIF: the orientation in them.
#include "entrain/core/dataset/image_formats.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  const int orientation = exif_orientation(fuzz::text_of(data, size));
  fuzz::expect(orientation >= 1 && orientation <= 8, "an orientation is one of eight");
  return 0;
}
