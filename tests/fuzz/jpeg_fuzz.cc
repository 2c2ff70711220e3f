// JPEG images.
#include "tests/fuzz/images.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  fuzz::try_image(fuzz::beginning_with("\xFF\xD8\xFF", fuzz::text_of(data, size)));
  return 0;
}
