// Files that hold samples, whatever their format: what the index and training see of them.
//
// Read first: SampleSource; sample_source.h opens one for a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "entrain/core/dataset/bytes_at.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// One file's worth of bytes, such as an image: in an archive, in memory or on disk.
struct MediaBytes {
  std::string where;  // names it in messages
  std::int64_t size = 0;
  BytesAt bytes;                        // usable as long as the source that found it
  std::filesystem::path path = {};      // of a file on disk; empty elsewhere
  std::optional<ImageSize> known = {};  // of an image that need not be opened

  [[nodiscard]] std::string content() const { return std::string(bytes(0, size)); }
};

// One of both: images of its frames in order, or one file.
struct FoundVideo {
  std::vector<MediaBytes> frames;
  std::optional<MediaBytes> file = {};
};

// A sample as its file has it, not yet parsed.
struct FoundSample {
  std::string id;                    // `SPLIT/NAME`
  std::int64_t offset = 0;           // where it lies in its file, for SampleLocation
  std::int64_t size = 0;             // likewise; named `bytes` there
  bool scattered = false;            // other samples lie between its members
  MediaBytes text;                   // a JSON object
  std::vector<MediaBytes> images;    // in order
  std::vector<FoundVideo> videos;    // in order
  std::vector<MediaBytes> audio;     // in order
  std::vector<std::string> ignored;  // extensions of members that are none of these
};

// Samples of one file, one after another.
class SampleSource {
 public:
  SampleSource() = default;
  SampleSource(const SampleSource&) = delete;
  SampleSource& operator=(const SampleSource&) = delete;
  virtual ~SampleSource() = default;

  [[nodiscard]] virtual std::int64_t num_samples() const = 0;
  // Id of the sample that next() returns or refuses.
  [[nodiscard]] virtual std::string upcoming() const = 0;
  // Called num_samples() times. If it throws, the next call goes on with the following sample.
  //
  // Throws  InvalidInput naming file and place: a damaged sample.
  virtual FoundSample next() = 0;
  // Of a source that reads more than a sample to get one: the largest such part, in bytes.
  [[nodiscard]] virtual std::int64_t bytes_of_a_row() const { return 0; }
  // What of the file is not read though it may have been meant to be.
  [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }
  // Parts of the file that belong to no sample, by reason.
  [[nodiscard]] virtual std::map<std::string, std::int64_t> skipped() const { return {}; }
};

}  // namespace entrain
