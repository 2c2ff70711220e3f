// WAV and FLAC audio: its length from the header, its samples, and their change of rate.
//
// libsndfile reads both, and believes headers; what they claim is compared here with what is there.
// The change of rate is ours: libsamplerate has neither this filter nor an exact place in time for
// every sample.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/dataset/bytes_at.h"

namespace entrain {

// Longer clips are refused before any memory is taken for them: 4.6 hours at 16 kHz.
inline constexpr std::int64_t kMaxAudioFrames = 1LL << 28;

struct AudioInfo {
  int sample_rate = 0;      // Hz, 1,000 to 384,000
  int channels = 0;         // 1 to 32
  std::int64_t frames = 0;  // samples of each channel, >= 1
  [[nodiscard]] double seconds() const { return static_cast<double>(frames) / sample_rate; }
  bool operator==(const AudioInfo&) const = default;
};

// Length and layout of a WAV or FLAC file of `size` bytes, which is there to its end. The format is
// told by the content, not by a file name.
//
// WAV: only whole chunks and zeros may follow the data. A claim of 0xFFFFFFFF bytes, or of 0 in a
// file that is longer than its header says, is that of a stream: its data go on to the file's end.
// FLAC: the last sample that the header claims is decoded, and none may follow it.
//
// Throws  InvalidInput naming `where`: no such file, a damaged header, another coding than PCM of
//         8, 16, 24 or 32 bits or floats of 32 or 64, a value outside AudioInfo's ranges, or less
//         or more data than the header claims.
// Cost    reads the header and a few bytes of each chunk behind the data; of a FLAC the frames on
//         the way of a binary search to the last.
AudioInfo audio_info(const BytesAt& bytes, std::int64_t size, const std::string& where);

struct DecodedAudio {
  AudioInfo info;
  std::vector<float> samples;  // [frames], in [-1, 1] for PCM: the mean of all channels
};

// Throws  InvalidInput naming `where`: whatever audio_info() refuses, damaged frames, and samples
//         that are no finite numbers.
DecodedAudio decode_audio(std::string_view bytes, const std::string& where);

// The signal at another rate: convolution with a sinc that cuts off at 0.99 of the lower rate's
// half under a squared-cosine window of six of its zero crossings a side; silence before and
// behind.
//
// Shapes    result: [⌈samples · to / from⌉], sample m at time m / to; `samples` itself where the
//           rates are equal.
// Requires  from, to >= 1.
// Source    The default filter of torchaudio's resample().
std::vector<float> resample(std::span<const float> samples, int from, int to);

}  // namespace entrain
