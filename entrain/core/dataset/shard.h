// Samples in WebDataset tar shards: members with the same key, which is their path up to the
// first dot of the file name; the rest after that dot is the extension.
//
// Read first: ShardReader walks a shard for the index; sample_at() finds one sample for training.
// docs/data.md compares this with the webdataset library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "entrain/core/dataset/columns.h"
#include "entrain/core/dataset/tar.h"

namespace entrain {

// One of both.
struct ShardVideo {
  std::vector<TarMember> frames;       // NAME.0.0000.png, NAME.0.0001.png … of video 0, in order
  std::optional<TarMember> file = {};  // NAME.mp4, .webm, .mkv, .mov, .avi; or NAME.0.mp4 …
};

// A text that columns place in a member.
struct ShardText {
  std::string ours;
  TarMember member;
  bool json = false;
  std::string steps;  // the place in its JSON; empty: all of it
};

// A sample's members by role. The part of an extension after its last dot is the format; before
// it there may be a number, which orders media of a kind, or two: a video's and its frame's.
struct ShardSample {
  std::string name;                   // its key
  std::int64_t offset = 0;            // of its first tar header
  std::int64_t bytes = 0;             // up to the end of its last member's padded content
  bool scattered = false;             // members of other samples are between its own
  TarMember text;                     // NAME.json, else its only NAME.….json, else NAME.txt
  std::vector<ShardText> texts = {};  // of columns that name members; `text` is then one of these
  bool caption = false;               // the text is NAME.txt: a caption, not JSON
  std::vector<TarMember> images;  // NAME.png, .jpg, .jpeg, .webp, .gif; or NAME.0.png, NAME.1.png …
  std::vector<ShardVideo> videos;
  std::vector<TarMember> audio;      // NAME.wav, .flac, .mp3, .ogg, .opus; or NAME.0.wav …
  std::vector<std::string> ignored;  // extensions of all other members
};

class ShardReader {
 public:
  // Walks all headers of the shard.
  //
  // Throws  InvalidInput naming shard and offset: whatever TarReader refuses; a member of a medium
  //         that `columns` names and no sample has.
  explicit ShardReader(const std::filesystem::path& shard, ColumnMap columns = {});

  // The next sample, in the order of first members. If it throws, the next call continues with
  // the following sample.
  //
  // Throws  InvalidInput naming shard, offset and member: a sample without text or with several,
  //         an extension twice, images, clips, videos or frames that are not numbered 0, 1, 2 …,
  //         a video that is frames and a file, images, audio or video of other formats.
  std::optional<ShardSample> next();

  // Key of the next sample, which next() returns or refuses.
  //
  // Requires  there is one.
  [[nodiscard]] const std::string& upcoming() const { return keys_.at(next_); }
  [[nodiscard]] std::int64_t num_samples() const { return std::ssize(keys_); }
  // Members that belong to no sample, skipped as in the webdataset library, by reason.
  [[nodiscard]] const std::map<std::string, std::int64_t>& skipped() const { return skipped_; }
  TarReader& tar() { return tar_; }
  // Names of all members of samples.
  [[nodiscard]] std::vector<std::string> member_names() const;

 private:
  void require_media(const std::filesystem::path& shard) const;

  TarReader tar_;
  ColumnMap columns_;
  std::vector<std::string> keys_;                // in the order of first members
  std::vector<std::vector<TarMember>> members_;  // [sample] in the shard's order
  std::vector<char> scattered_;                  // [sample]
  std::size_t next_ = 0;
  std::map<std::string, std::int64_t> skipped_;
};

// "train/chart-17" for sample "chart-17" of ".../train-000003.tar": the shard's file name without
// `.tar`, `.tar.gz` or `.tgz` and without a number after its last '-', then the sample's name.
std::string sample_id(const std::filesystem::path& shard, const std::string& name);

// Whether the name is that of a compressed shard (.tar.gz, .tgz): it can be indexed for
// studies, but its samples cannot be read at their offsets, so it cannot be used for training.
bool is_compressed_shard(const std::filesystem::path& path);

struct PlacedSample {
  TarReader tar;
  ShardSample sample;
};

// The one sample between two offsets of a shard. Up to 4 MiB are read at once; more, as of samples
// whose members are scattered, header by header.
//
// Throws  InvalidInput when the shard does not exist, is too short, or holds something else there;
//         SystemFailure when reading fails.
PlacedSample sample_at(const std::filesystem::path& shard,
                       std::int64_t offset,
                       std::int64_t bytes,
                       const ColumnMap& columns = {});

}  // namespace entrain
