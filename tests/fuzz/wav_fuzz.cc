// WAV audio.
#include "tests/fuzz/sounds.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  std::string bytes = fuzz::beginning_with("RIFF", fuzz::text_of(data, size));
  if (size >= 12) {
    bytes.replace(8, 4, "WAVE");
  }
  fuzz::try_sound(bytes);
  return 0;
}
