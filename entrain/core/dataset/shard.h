// Samples in WebDataset tar shards: members that stand next to each other and share their name up
// to its first dot.
//
// Read first: ShardReader walks a shard for the index; read_sample() brings one sample to training.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "entrain/core/dataset/tar.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// A sample's members by their role.
struct ShardSample {
  std::string name;               // folder and file name up to the first dot
  std::int64_t offset = 0;        // of its first tar header
  std::int64_t bytes = 0;         // up to the end of its last member's padded content
  TarMember text;                 // NAME.json
  std::vector<TarMember> images;  // NAME.png, .jpg, .jpeg; or NAME.0.png, NAME.1.png … in order
  std::vector<TarMember> audio;   // NAME.wav; or NAME.0.wav, NAME.1.wav … in order
  std::vector<std::string> ignored;  // extensions of all other members
};

class ShardReader {
 public:
  explicit ShardReader(const std::filesystem::path& shard);

  // Throws  InvalidInput naming shard, offset and member: whatever TarReader refuses, a member
  //         without name or extension, a sample without NAME.json, images or clips that are
  //         not numbered 0, 1, 2 …, video, images or audio of other formats.
  std::optional<ShardSample> next();

  TarReader& tar() { return tar_; }

 private:
  TarReader tar_;
  std::optional<TarMember> ahead_;  // first member of the next sample
};

// "train/chart-17" for sample "chart-17" of ".../train-000003.tar": the shard's file name without
// `.tar` and without a number after its last '-', then the sample's name.
std::string sample_id(const std::filesystem::path& shard, const std::string& name);

// One sample's content, not yet parsed.
struct RawSample {
  std::string text;                 // of NAME.json
  std::vector<std::string> images;  // encoded, in order
  std::vector<std::string> audio;   // encoded, in order
};

// Reads a sample with one pread and checks that it is the one the index means.
//
// Throws  InvalidInput naming shard, sample and offset when the shard does not exist, is too short,
//         or holds something else there; SystemFailure when reading fails.
RawSample read_sample(const std::filesystem::path& shard,
                      const SampleLocation& location,
                      const std::string& id);

}  // namespace entrain
