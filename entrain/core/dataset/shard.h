// Samples in WebDataset tar shards: members with the same key, which is their path up to the
// first dot of the file name; the rest after that dot is the extension.
//
// Read first: ShardReader walks a shard for the index; sample_at() finds one sample for training.
// docs/data.md compares this with the webdataset library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "entrain/core/dataset/columns.h"
#include "entrain/core/dataset/found_sample.h"
#include "entrain/core/dataset/tar.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// The samples of a shard, in the order of first members. The part of a member's extension after its
// last dot is the format; before it there may be a number, which orders media of a kind, or two: a
// video's and its frame's.
//
// Text    NAME.json, else its only NAME.….json, else NAME.txt, a caption.
// Images  NAME.png, .jpg, .jpeg, .webp, .gif; or NAME.0.png, NAME.1.png …
// Videos  frames NAME.0.0000.png, NAME.0.0001.png … of video 0, or files NAME.mp4, .webm, .mkv,
//         .mov, .avi; or NAME.0.mp4 …
// Audio   NAME.wav, .flac, .mp3, .ogg, .opus; or NAME.0.wav …
class ShardReader : public SampleSource {
 public:
  // Walks all headers of the shard. `image_sizes`: Energon's media metadata, which know the sizes
  // of images; empty: images are opened.
  //
  // Throws  InvalidInput naming shard and offset: whatever TarReader refuses; a member of a medium
  //         that `columns` names and no sample has.
  explicit ShardReader(const std::filesystem::path& shard,
                       ColumnMap columns = {},
                       const std::filesystem::path& image_sizes = {});

  [[nodiscard]] std::int64_t num_samples() const override { return std::ssize(keys_); }
  [[nodiscard]] std::string upcoming() const override;
  // Throws  InvalidInput naming shard, offset and member: a sample without text or with several,
  //         an extension twice, images, clips, videos or frames that are not numbered 0, 1, 2 …,
  //         a video that is frames and a file, images, audio or video of other formats.
  FoundSample next() override;
  // Members that belong to no sample, skipped as in the webdataset library, by reason.
  [[nodiscard]] std::map<std::string, std::int64_t> skipped() const override { return skipped_; }

 private:
  void require_media() const;

  std::filesystem::path shard_;
  std::shared_ptr<TarReader> tar_;
  ColumnMap columns_;
  std::vector<std::string> keys_;                // in the order of first members
  std::vector<std::vector<TarMember>> members_;  // [sample] in the shard's order
  std::vector<char> scattered_;                  // [sample]
  std::size_t next_ = 0;
  std::map<std::string, std::int64_t> skipped_;
  std::unordered_map<std::string, ImageSize> image_sizes_;  // by member
};

// "train/chart-17" for sample "chart-17" of ".../train-000003.tar": the shard's file name without
// `.tar`, `.tar.gz` or `.tgz` and without a number after its last '-', then the sample's name.
std::string sample_id(const std::filesystem::path& shard, const std::string& name);

// Whether the name is that of a compressed shard (.tar.gz, .tgz): it can be indexed for
// studies, but its samples cannot be read at their offsets, so it cannot be used for training.
bool is_compressed_shard(const std::filesystem::path& path);

// The one sample at a location. Up to 4 MiB are read at once; more, as of samples whose members are
// scattered, header by header.
//
// Throws  InvalidInput when the shard does not exist, is too short, or holds something else there;
//         SystemFailure when reading fails.
FoundSample sample_at(const SampleLocation& location);

}  // namespace entrain
