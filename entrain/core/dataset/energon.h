// Folders of shards that Energon prepared: what `.nv-meta` in them says.
//
// Read first: energon_shards(), energon_fields(). The YAML is read as Energon writes it: mappings
// and lists by indentation, or short ones in braces and brackets.
#pragma once

#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "entrain/core/dataset/columns.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// Whether `folder` has a `.nv-meta/split.yaml`.
bool is_energon_folder(const std::filesystem::path& folder);

// Shards of a split, in order, as paths; names with braces are not expanded.
//
// Throws  InvalidInput naming split.yaml: of another form than Energon writes, without the split
//         (with those that there are), or with single samples that are excluded.
std::vector<std::filesystem::path> energon_shards(const std::filesystem::path& folder,
                                                  const std::string& split);

struct EnergonFields {
  ColumnMap columns;               // empty without a dataset.yaml
  std::vector<std::string> notes;  // fields that are not read
};

// The field map of `.nv-meta/dataset.yaml`: which members hold what. Captioning, VQA, video QA, OCR
// and text samples can be expressed.
//
// Throws  InvalidInput naming dataset.yaml and the field or type that cannot be expressed, with the
//         way out.
EnergonFields energon_fields(const std::filesystem::path& folder);

// The file that `energon prepare-media` writes, with the stored sizes of images.
//
// Throws  InvalidInput if there is none.
std::filesystem::path energon_media_metadata(const std::filesystem::path& folder);

// Of the images that such a file has: member → size, of those of `members`. The sizes are as
// stored: the metadata do not say whether EXIF turns an image. A thread's first call starts a
// process of Python, which ends with the thread.
//
// Throws  InvalidInput naming the file: no metadata in it, or damaged.
// Cost    about 5 us a member.
std::unordered_map<std::string, ImageSize> read_image_sizes(
    const std::filesystem::path& file, const std::vector<std::string>& members);

}  // namespace entrain
