// Which media a record names: files by path, or their bytes inside the text.
//
// Read first: media_of(), then open_media(). docs/data.md has the table of forms.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/dataset/found_sample.h"

namespace entrain {

// One of them is not empty.
struct MediaRef {
  std::string path;                     // as the record has it, `file://` left out
  std::string bytes;                    // of base64 or of a `data:` URL
  std::optional<MediaBytes> held = {};  // of a table
};

struct MediaRefs {  // each in the order of the record
  std::vector<MediaRef> images;
  std::vector<MediaRef> videos;
  std::vector<MediaRef> audio;

  [[nodiscard]] bool empty() const;
  // Whether the record held bytes.
  [[nodiscard]] bool inside() const;
  // Of kind 0 images, 1 videos, 2 audio.
  [[nodiscard]] static constexpr int num_kinds() { return 3; }
  std::vector<MediaRef>& of(int kind);
};

// Keys of a record that name media of a kind.
std::span<const std::string_view> media_keys(int kind);

// The media of a record, which come from one of two places for each kind: the record's own keys
// (`image`, `images`, `audio`, `audios`, `video`, `videos`: a path, a list of them, or objects with
// `path`), or the parts of its `messages` that name one (`image_url`, `input_audio`, `{"type":
// "image", "image": PATH}` and their like). Parts without a path are places in the text and name
// nothing.
//
// Bytes inside the record are moved out of it: empty texts stay.
//
// Throws  InvalidInput naming `where` and the key: media of both places or of two keys, a value of
//         another type, an address on the network (with the way out), base64 that is none.
MediaRefs media_of(Json& record, const std::string& where);

// For a record without media: nothing is dropped in silence.
//
// Throws  InvalidInput naming `where` and the key if one that holds no text names a file with the
//         extension of an image, a clip or a video.
void refuse_unread(const Json& record, const std::string& where);

// The media as bytes, in a sample that has nothing else yet. Files are read in pieces, and open
// only while they are read. `folder`: what paths are relative to.
//
// Throws  InvalidInput naming `where` and the medium: a file that does not exist, leaves the folder
//         by `..`, or is no regular file.
FoundSample open_media(MediaRefs refs,
                       const std::filesystem::path& folder,
                       const std::string& where);

MediaBytes bytes_in_memory(std::string bytes, std::string where);

}  // namespace entrain
