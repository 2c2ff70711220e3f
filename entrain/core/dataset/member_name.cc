#include "entrain/core/dataset/member_name.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include <fmt/format.h>

namespace entrain {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char character) {
    return static_cast<char>(std::tolower(character));
  });
  return out;
}

NameParts split_name(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  const std::size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = path.find('.', begin);
  if (dot == std::string_view::npos || dot == begin) {
    return {};
  }
  return {path.substr(0, dot), path.substr(dot + 1)};
}

// Names of the form __NAME__, of files at the top and of folders, are WebDataset's own.
std::string reason_to_skip(std::string_view path) {
  const auto is_meta = [](std::string_view name) {
    return name.size() >= 4 && name.starts_with("__") && name.ends_with("__");
  };
  if (is_meta(path.substr(0, path.find('/')))) {
    return "__NAME__ (metadata)";
  }
  if (!split_name(path).key.empty()) {
    return "";
  }
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with('.') ? "hidden files" : "no extension";
}

std::string_view format_of(std::string_view extension) {
  return extension.substr(extension.rfind('.') + 1);
}

std::string_view field_of(std::string_view extension) {
  const std::size_t dot = extension.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : extension.substr(0, dot);
}

std::string_view medium_of(std::string_view format) {
  struct Medium {
    std::string_view name;
    std::array<std::string_view, 5> formats;
  };
  constexpr std::array<Medium, 3> kMedia = {{{"image", {"png", "jpg", "jpeg", "webp", "gif"}},
                                             {"audio", {"wav", "flac", "mp3", "ogg", "opus"}},
                                             {"video", {"mp4", "webm", "mkv", "mov", "avi"}}}};
  for (const Medium& medium : kMedia) {
    if (std::ranges::find(medium.formats, format) != medium.formats.end()) {
      return medium.name;
    }
  }
  return "";
}

std::string way_out_of(std::string_view format) {
  struct Refused {
    std::vector<std::string_view> formats;
    const char* way_out;
  };
  static const std::array<Refused, 3> refused = {
      {{{"bmp", "tif", "tiff", "avif", "heic", "heif", "jp2", "jxl"},
        "images must be PNG, JPEG, WebP or GIF: `magick x.{0} x.png`"},
       {{"m4a", "aac", "wma", "aiff"},
        "audio must be WAV, FLAC, MP3, Ogg Vorbis or Ogg Opus: `ffmpeg -i x.{0} x.flac`"},
       {{"mpg", "mpeg", "m4v", "flv", "wmv", "ogv", "3gp"},
        "video must be MP4, WebM, MKV, MOV, AVI or frames: `ffmpeg -i x.{0} x.mp4`"}}};
  for (const Refused& medium : refused) {
    if (std::ranges::find(medium.formats, format) != medium.formats.end()) {
      return fmt::format(fmt::runtime(medium.way_out), format);
    }
  }
  return "";
}

}  // namespace entrain
