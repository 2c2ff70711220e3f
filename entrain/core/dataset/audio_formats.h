// How audio.h reads each format: WAV and FLAC by audio.cc, MP3 by audio_mp3.cc, Ogg by audio.cc
// once audio_ogg.cc has walked its pages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "entrain/core/dataset/audio_info.h"
#include "entrain/core/dataset/bytes_at.h"

namespace entrain {

// A clip whose header and end are as audio_info() promises.
class AudioFile {
 public:
  AudioFile(const char* kind, const std::string& where) : kind_(kind), where_(where) {}
  virtual ~AudioFile() = default;
  AudioFile(const AudioFile&) = delete;
  AudioFile& operator=(const AudioFile&) = delete;

  [[nodiscard]] const AudioInfo& info() const { return info_; }
  // The next read begins with the first sample.
  virtual void rewind() = 0;
  // Reads the next `frames`, channels interleaved. Returns how many are there and undamaged.
  virtual std::int64_t read(std::int64_t frames, double* target) = 0;

  // Throws  InvalidInput naming `where`, both.
  [[noreturn]] void damaged(const std::string& message) const;
  [[noreturn]] void refuse(const std::string& message) const;

 protected:
  [[nodiscard]] const std::string& where() const { return where_; }
  // Throws  InvalidInput for what is outside AudioInfo's ranges, both.
  void set_layout(std::int64_t sample_rate, std::int64_t channels);
  void set_frames(std::int64_t frames);

 private:
  const char* kind_;
  const std::string& where_;
  AudioInfo info_;
};

// Whether a file begins as an MP3 does: an ID3 tag or a frame of layer III.
bool begins_mp3(std::string_view head);
std::unique_ptr<AudioFile> open_mp3(const BytesAt& bytes,
                                    std::int64_t size,
                                    const std::string& where);

// Walks the pages of an Ogg file up to the end of its stream. Returns where that is.
//
// Throws  InvalidInput naming `where`: a page that is cut, damaged or missing, and a second stream.
// Cost    reads all of it.
std::int64_t end_of_ogg(const BytesAt& bytes, std::int64_t size, const std::string& where);

}  // namespace entrain
