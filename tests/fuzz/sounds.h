// What the targets of audio formats share: the length, and the samples of files of up to a million.
#pragma once

#include "entrain/core/dataset/audio.h"

#include "tests/fuzz/fuzz.h"

namespace entrain::fuzz {

inline void try_sound(std::string_view bytes) {
  constexpr std::int64_t kMaxFrames = 1 << 20;
  const WatchedBytes watched(bytes);
  expect_result_or_refusal([&] {
    const AudioInfo stated = audio_info(watched.reader(), std::ssize(bytes), "clip");
    if (stated.frames > kMaxFrames) {
      return;  // refused or decoded alike, only slower
    }
    const DecodedAudio audio = decode_audio(bytes, "clip");
    expect(audio.info == stated && std::ssize(audio.samples) == stated.frames,
           "the header's length is the decoder's");
  });
}

}  // namespace entrain::fuzz
