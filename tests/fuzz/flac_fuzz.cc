// FLAC audio.
#include "tests/fuzz/sounds.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  fuzz::try_sound(fuzz::beginning_with("fLaC", fuzz::text_of(data, size)));
  return 0;
}
