// WAV files: what their headers say, and their samples.
#include "entrain/core/dataset/audio.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  const std::string_view bytes = fuzz::text_of(data, size);
  fuzz::expect_result_or_refusal(
      [&] { audio_info(bytes, static_cast<std::int64_t>(size), "clip"); });
  const fuzz::WatchedBytes watched(bytes);
  fuzz::expect_result_or_refusal(
      [&] { check_audio_end(bytes, static_cast<std::int64_t>(size), watched.reader(), "clip"); });
  fuzz::expect_result_or_refusal([&] { decode_audio(bytes, "clip"); });
  return 0;
}
