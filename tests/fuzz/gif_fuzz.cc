// GIF images. Few bytes make large canvases, whose filling would take most of the time.
#include "tests/fuzz/images.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  fuzz::try_image(fuzz::beginning_with("GIF89a", fuzz::text_of(data, size)), 1 << 14);
  return 0;
}
