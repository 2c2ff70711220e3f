// Samples of files of every format.
//
// Read first: open_samples() walks a file for the index, read_sample() reads one sample for
// training. Formats: shard.h (WebDataset tars), records.h (JSON and JSON Lines), table.h (Parquet
// and Arrow).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "entrain/core/dataset/columns.h"
#include "entrain/core/dataset/found_sample.h"
#include "entrain/core/dataset/video_file.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// Opens a file that list_data() names. `media`: folder of the files that records name by path.
// `columns`: what samples' parts are called there. `image_sizes`: Energon's media metadata, which
// know the sizes of a shard's images; empty: images are opened.
//
// Throws  InvalidInput naming file and offset: no such file, or one that is damaged as a whole.
std::unique_ptr<SampleSource> open_samples(const std::filesystem::path& file,
                                           const std::filesystem::path& media,
                                           const ColumnMap& columns = {},
                                           const std::filesystem::path& image_sizes = {});

// One of both: its frames, encoded, in order, or one file.
struct RawVideo {
  std::vector<std::string> frames;
  std::optional<VideoFile> file = {};
};

// One sample's content, not yet parsed.
struct RawSample {
  std::string text;                 // JSON
  std::vector<std::string> images;  // encoded, in order
  std::vector<RawVideo> videos;     // in order
  std::vector<std::string> audio;   // encoded, in order
};

// Reads a sample and checks that it is the one of that id. Paths of `location` are relative to the
// working directory (index.h: located()).
//
// Throws  InvalidInput naming file, sample and offset when the file does not exist, is compressed,
//         is too short, or holds something else there; SystemFailure when reading fails.
// Cost    of a shard's sample one read up to 4 MiB; of a record one read and one for each medium;
//         files of video on disk are not read here.
RawSample read_sample(const SampleLocation& location, const std::string& id);

}  // namespace entrain
