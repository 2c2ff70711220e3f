#include "entrain/core/dataset/media_refs.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/base64.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/member_name.h"
#include "entrain/core/dataset/tar.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

struct Kind {
  std::string_view name;
  std::array<std::string_view, 4> keys;  // of a record
  std::array<const char*, 3> types;      // of a part of a message
};
constexpr std::array<Kind, 3> kKinds = {
    Kind{"image", {"image", "images", "image_path", "image_paths"}, {"image", "image_url", ""}},
    Kind{"video", {"video", "videos", "video_path", "video_paths"}, {"video", "video_url", ""}},
    Kind{"audio",
         {"audio", "audios", "audio_path", "audio_paths"},
         {"audio", "audio_url", "input_audio"}}};

// Where a part or an object of a record has the medium.
constexpr std::array<const char*, 11> kPlaces = {"path",
                                                 "url",
                                                 "image",
                                                 "image_url",
                                                 "video",
                                                 "video_url",
                                                 "audio",
                                                 "audio_url",
                                                 "input_audio",
                                                 "base64",
                                                 "data"};

[[noreturn]] void fail(const std::string& where, const std::string& message) {
  throw InvalidInput(fmt::format("{}: {}", where, message));
}

std::string decoded(std::string_view text, const std::string& where) {
  std::optional<std::string> bytes = decode_base64(text);
  if (!bytes || bytes->empty()) {
    fail(where, "no base64");
  }
  return std::move(*bytes);
}

// "data:image/png;base64,…", a path, "file:///a/b.png".
MediaRef ref_of_text(std::string_view text, const std::string& where) {
  constexpr std::string_view kFile = "file://";
  if (text.starts_with("data:")) {
    const std::size_t comma = text.find(',');
    if (comma == std::string_view::npos || !text.substr(0, comma).ends_with(";base64")) {
      fail(where, "a data: URL without `;base64,`");
    }
    return {"", decoded(text.substr(comma + 1), where), {}};
  }
  const std::size_t scheme = text.find("://");
  if (text.starts_with(kFile)) {
    text.remove_prefix(kFile.size());
  } else if (scheme != std::string_view::npos && scheme < 16) {
    fail(where,
         fmt::format("'{}' is on the network, where nothing is read: download it first and name "
                     "the file (img2dataset does so for lists of addresses, and writes shards)",
                     text.substr(0, 80)));
  }
  if (text.empty() || text.find('\0') != std::string_view::npos) {
    fail(where, "an empty path");
  }
  return {std::string(text), "", {}};
}

// Of a path, or of an object around one; nothing where it names none.
std::optional<MediaRef> ref_of(Json& value, const std::string& where) {
  if (value.is_string()) {
    auto& text = value.get_ref<std::string&>();
    std::optional<MediaRef> ref =
        text.empty() ? std::nullopt : std::optional(ref_of_text(text, where));
    if (ref && ref->path.empty()) {
      text.clear();
    }
    return ref;
  }
  if (value.is_null()) {
    return std::nullopt;
  }
  if (!value.is_object()) {
    fail(where, fmt::format("{}; a path or an object with `path` is needed", value.type_name()));
  }
  for (const char* key : kPlaces) {
    const auto found = value.find(key);
    if (found == value.end() || found->is_null()) {
      continue;
    }
    const std::string place = fmt::format("{}.{}", where, key);
    const std::string_view name = key;
    if ((name == "base64" || name == "data") && found->is_string()) {
      return MediaRef{"", decoded(std::exchange(found->get_ref<std::string&>(), ""), place), {}};
    }
    return ref_of(*found, place);
  }
  return std::nullopt;
}

void add_list(Json& value, std::vector<MediaRef>& refs, const std::string& where) {
  if (!value.is_array()) {
    if (std::optional<MediaRef> ref = ref_of(value, where)) {
      refs.push_back(std::move(*ref));
    }
    return;
  }
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", where, i);
    std::optional<MediaRef> ref = ref_of(value[i], place);
    if (!ref) {
      fail(place, "names no file");
    }
    refs.push_back(std::move(*ref));
  }
}

// Index of the kind of a part of that type; none for text.
std::optional<std::size_t> kind_of_part(const Json& part) {
  const auto type = part.find("type");
  if (type == part.end() || !type->is_string()) {
    return std::nullopt;
  }
  const auto& name = type->get_ref<const std::string&>();
  for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
    for (const char* known : kKinds[kind].types) {
      if (!name.empty() && name == known) {
        return kind;
      }
    }
  }
  return std::nullopt;
}

// Media that parts of messages name.
void add_parts(Json& messages, MediaRefs& refs, const std::string& where) {
  for (std::size_t i = 0; messages.is_array() && i < messages.size(); ++i) {
    const auto content = messages[i].is_object() ? messages[i].find("content") : messages[i].end();
    if (content == messages[i].end() || !content->is_array()) {
      continue;
    }
    for (std::size_t j = 0; j < content->size(); ++j) {
      Json& part = (*content)[j];
      const std::optional<std::size_t> kind = part.is_object() ? kind_of_part(part) : std::nullopt;
      if (kind) {
        const std::string place = fmt::format("{}: messages[{}].content[{}]", where, i, j);
        if (std::optional<MediaRef> ref = ref_of(part, place)) {
          refs.of(static_cast<int>(*kind)).push_back(std::move(*ref));
        }
      }
    }
  }
}

// A file that is read in pieces, and open only while it is read.
class MediaFile {
 public:
  // `named`: as the record has it.
  MediaFile(fs::path path, const fs::path& named, const std::string& where)
      : path_(std::move(path)) {
    std::error_code unreachable;
    const fs::file_status status = fs::status(path_, unreachable);
    if (!fs::is_regular_file(status)) {
      throw InvalidInput(
          fmt::format("{}: '{}': {}{}",
                      where,
                      path_.lexically_normal().string(),
                      unreachable ? unreachable.message() : "no regular file",
                      named.is_absolute() ? "" : " (`entrain index --media` names the folder)"));
    }
    size_ = static_cast<std::int64_t>(fs::file_size(path_));
  }

  [[nodiscard]] std::int64_t size() const { return size_; }

  std::string_view at(std::int64_t offset, std::int64_t count) {
    constexpr std::int64_t kPiece = 64 << 10;
    if (offset < begin_ || offset + count > begin_ + std::ssize(piece_)) {
      piece_ = read_range(path_, offset, std::min(std::max(count, kPiece), size_ - offset));
      begin_ = offset;
    }
    return std::string_view(piece_).substr(static_cast<std::size_t>(offset - begin_),
                                           static_cast<std::size_t>(count));
  }

 private:
  fs::path path_;
  std::int64_t size_ = 0;
  std::int64_t begin_ = 0;
  std::string piece_;  // bytes from begin_ on
};

// Absolute, or inside the folder.
fs::path path_in(const fs::path& folder, const std::string& path, const std::string& where) {
  const fs::path given = fs::path(path).lexically_normal();
  if (!given.is_absolute() && *given.begin() == "..") {
    throw InvalidInput(fmt::format(
        "{}: '{}' lies outside '{}', which --media names", where, path, folder.string()));
  }
  return folder / given;
}

std::vector<MediaBytes> bytes_of_refs(std::vector<MediaRef>& refs,
                                      const char* kind,
                                      const fs::path& media,
                                      const std::string& where) {
  std::vector<MediaBytes> result;
  for (MediaRef& ref : refs) {
    const std::string name = fmt::format("{}, {} {}", where, kind, result.size());
    if (ref.held) {
      result.push_back(std::move(*ref.held));
      result.back().where = name;
      continue;
    }
    if (ref.path.empty()) {
      result.push_back(bytes_in_memory(std::move(ref.bytes), name));
      continue;
    }
    const fs::path path = path_in(media, ref.path, name);
    const auto file = std::make_shared<MediaFile>(path, ref.path, name);
    result.push_back(
        {fmt::format("{} ('{}')", name, path.string()),
         file->size(),
         [file](std::int64_t offset, std::int64_t count) { return file->at(offset, count); },
         path});
  }
  return result;
}

}  // namespace

bool MediaRefs::empty() const {
  return images.empty() && videos.empty() && audio.empty();
}

bool MediaRefs::inside() const {
  const auto any = [](const std::vector<MediaRef>& refs) {
    return std::any_of(
        refs.begin(), refs.end(), [](const MediaRef& ref) { return !ref.bytes.empty(); });
  };
  return any(images) || any(videos) || any(audio);
}

std::vector<MediaRef>& MediaRefs::of(int kind) {
  return kind == 0 ? images : kind == 1 ? videos : audio;
}

std::span<const std::string_view> media_keys(int kind) {
  return kKinds.at(static_cast<std::size_t>(kind)).keys;
}

void refuse_unread(const Json& record, const std::string& where) {
  constexpr std::array<std::string_view, 10> kTexts = {
      "id", "text", "caption", "question", "answer", "prompt", "response", "kind", "source", "url"};
  constexpr std::array<std::string_view, 16> kExtensions = {".png",
                                                            ".jpg",
                                                            ".jpeg",
                                                            ".webp",
                                                            ".gif",
                                                            ".bmp",
                                                            ".tiff",
                                                            ".wav",
                                                            ".mp3",
                                                            ".flac",
                                                            ".ogg",
                                                            ".opus",
                                                            ".mp4",
                                                            ".webm",
                                                            ".mkv",
                                                            ".mov"};
  for (const auto& [key, value] : record.items()) {
    const Json& first = value.is_array() && !value.empty() ? value.front() : value;
    if (!first.is_string() || std::find(kTexts.begin(), kTexts.end(), key) != kTexts.end()) {
      continue;
    }
    const std::string name = lower(first.get_ref<const std::string&>());
    for (const std::string_view extension : kExtensions) {
      if (name.size() < 1000 && name.ends_with(extension)) {
        fail(where,
             fmt::format("`{}` names a file that nothing reads; media are read from `image`, "
                         "`images`, `audio`, `audios`, `video` and `videos`, and from parts of "
                         "`messages`",
                         key));
      }
    }
  }
}

MediaRefs media_of(Json& record, const std::string& where) {
  MediaRefs refs;
  if (const auto messages = record.find("messages"); messages != record.end()) {
    add_parts(*messages, refs, where);
  }
  for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
    std::vector<MediaRef>& list = refs.of(static_cast<int>(kind));
    std::string_view first = list.empty() ? "" : "messages";
    for (const std::string_view key : kKinds[kind].keys) {
      std::vector<MediaRef> found;
      if (const auto value = record.find(std::string(key)); value != record.end()) {
        add_list(*value, found, fmt::format("{}: {}", where, key));
      }
      if (!found.empty() && !first.empty()) {
        fail(where,
             fmt::format(
                 "`{}` and `{}` both name {} files; leave one out", first, key, kKinds[kind].name));
      }
      if (!found.empty()) {
        first = key;
        list = std::move(found);
      }
    }
  }
  return refs;
}

MediaBytes bytes_in_memory(std::string bytes, std::string where) {
  const std::int64_t size = std::ssize(bytes);
  auto held = std::make_shared<const std::string>(std::move(bytes));
  return {std::move(where), size, [held](std::int64_t offset, std::int64_t count) {
            return std::string_view(*held).substr(static_cast<std::size_t>(offset),
                                                  static_cast<std::size_t>(count));
          }};
}

FoundSample open_media(MediaRefs refs, const fs::path& folder, const std::string& where) {
  FoundSample found;
  found.images = bytes_of_refs(refs.images, "image", folder, where);
  for (MediaBytes& file : bytes_of_refs(refs.videos, "video", folder, where)) {
    found.videos.push_back({{}, std::move(file)});
  }
  found.audio = bytes_of_refs(refs.audio, "clip", folder, where);
  return found;
}

}  // namespace entrain
