// Ogg Vorbis and Opus audio. Pages get the checksums that they should have, or no changed one would
// get past them.
#include <ogg/ogg.h>

#include "tests/fuzz/sounds.h"

namespace entrain::fuzz {
namespace {

void fix_checksums(std::string& bytes) {
  constexpr std::size_t kHeader = 27;  // up to the lengths of a page's segments
  std::size_t page = 0;
  while (bytes.compare(page, 4, "OggS") == 0 && page + kHeader < bytes.size()) {
    const std::size_t segments = static_cast<unsigned char>(bytes[page + kHeader - 1]);
    const std::size_t body = page + kHeader + segments;
    if (body > bytes.size()) {
      return;
    }
    std::size_t length = 0;
    for (std::size_t i = page + kHeader; i < body; ++i) {
      length += static_cast<unsigned char>(bytes[i]);
    }
    if (length > bytes.size() - body) {
      return;
    }
    auto* data = reinterpret_cast<unsigned char*>(bytes.data());
    ogg_page whole = {
        data + page, static_cast<long>(body - page), data + body, static_cast<long>(length)};
    ogg_page_checksum_set(&whole);
    page = body + length;
  }
}

}  // namespace
}  // namespace entrain::fuzz

// libsndfile keeps some memory of the Ogg files that it refuses.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libsndfile\nleak:libvorbis\nleak:libogg";
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  std::string bytes = fuzz::beginning_with("OggS", fuzz::text_of(data, size));
  fuzz::fix_checksums(bytes);
  fuzz::try_sound(bytes);
  return 0;
}
