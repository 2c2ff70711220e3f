// Audio of every format: its length, and the samples of files of up to a million.
#include "entrain/core/dataset/audio.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  const std::string_view bytes = fuzz::text_of(data, size);
  constexpr std::int64_t kMaxFrames = 1 << 20;
  const fuzz::WatchedBytes watched(bytes);
  fuzz::expect_result_or_refusal([&] {
    const AudioInfo stated = audio_info(watched.reader(), static_cast<std::int64_t>(size), "clip");
    if (stated.frames > kMaxFrames) {
      return;  // refused or decoded alike, only slower
    }
    const DecodedAudio audio = decode_audio(bytes, "clip");
    fuzz::expect(audio.info == stated && std::ssize(audio.samples) == stated.frames,
                 "the header's length is the decoder's");
  });
  return 0;
}
