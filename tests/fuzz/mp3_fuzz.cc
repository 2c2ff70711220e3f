// MP3 audio, with ID3 tags and without.
#include "tests/fuzz/sounds.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  const std::string_view bytes = fuzz::text_of(data, size);
  fuzz::try_sound(bytes.starts_with("ID3") ? std::string(bytes)
                                           : fuzz::beginning_with("\xFF\xFB", bytes));
  return 0;
}
