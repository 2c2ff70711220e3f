// WAV, FLAC, MP3, Ogg Vorbis and Ogg Opus audio: its length without decoding it, its samples, and
// their change of rate.
//
// libsndfile reads all but MP3, mpg123 that. They believe headers and pass over damage; what is
// claimed is compared here with what is there. The change of rate is ours: libsamplerate has
// neither this filter nor an exact place in time for every sample.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/dataset/audio_info.h"
#include "entrain/core/dataset/bytes_at.h"

namespace entrain {

// Length and layout of a file of `size` bytes, which is there to its end. The format is told by the
// content, not by a file name. The length is what decode_audio() yields.
//
// WAV   only whole chunks and zeros may follow the data. A claim of 0xFFFFFFFF bytes, or of 0 in a
//       file that is longer than its header says, is that of a stream: its data go on to the file's
//       end.
// FLAC  the last sample that the header claims is decoded, and none may follow it.
// MP3   (MPEG layer 3, ID3 tags around it) every frame is counted. An Info or Xing tag in the first
//       one must claim as many as are there; what it states as encoder delay and padding is cut
//       off, so that the length is that of the sound before encoding. Without such a tag nothing is
//       cut off, and nothing says where the file should end: all whole frames count. Damage inside
//       a frame is not noticed, as by all decoders.
// Ogg   every page is there, in order, and its checksum holds; they are one stream of Vorbis or
//       Opus up to a page that ends it. Bytes behind that are left alone, but not a second stream.
//       The length is that of the first and last pages' positions. Opus is decoded at the lowest of
//       its rates that is not below the one of its header.
//
// Throws  InvalidInput naming `where`: another format, a damaged header, WAV and FLAC of another
//         coding than PCM of 8, 16, 24 or 32 bits or floats of 32 or 64, a value outside the ranges
//         of AudioInfo, or less or more data than claimed.
// Cost    reads the header and a few bytes of each chunk behind the data of a WAV; of a FLAC the
//         frames on the way of a binary search to the last; all of an MP3 or Ogg.
AudioInfo audio_info(const BytesAt& bytes, std::int64_t size, const std::string& where);

struct DecodedAudio {
  AudioInfo info;
  std::vector<float> samples;  // [frames], in [-1, 1] for PCM: the mean of all channels
};

// Ensures  the samples are those that libsndfile decodes from the start; of an MP3 without Info
//          tag, whose length libsndfile guesses, all of them.
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
