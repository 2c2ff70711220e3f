// Length and layout of a clip.
#pragma once

#include <cstdint>

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

}  // namespace entrain
