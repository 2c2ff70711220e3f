#include "entrain/core/dataset/shard.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr std::array<std::string_view, 3> kImageExtensions = {"png", "jpg", "jpeg"};
constexpr std::string_view kAudioExtension = "wav";
// Content that must not be dropped in silence.
constexpr std::array<std::string_view, 14> kRefusedExtensions = {"webp",
                                                                 "gif",
                                                                 "bmp",
                                                                 "tif",
                                                                 "tiff",
                                                                 "avif",
                                                                 "heic",
                                                                 "flac",
                                                                 "mp3",
                                                                 "ogg",
                                                                 "m4a",
                                                                 "mp4",
                                                                 "webm",
                                                                 "avi"};

template <class List>
bool contains(const List& list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char character) {
    return static_cast<char>(std::tolower(character));
  });
  return out;
}

struct NameParts {
  std::string_view name;
  std::string_view extension;  // all behind the first dot of the file name
};

NameParts split_name(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  const std::size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = path.find('.', begin);
  if (dot == std::string_view::npos || dot == begin) {
    return {};
  }
  return {path.substr(0, dot), path.substr(dot + 1)};
}

// Collects the members of one sample by role.
class SampleBuilder {
 public:
  SampleBuilder(const TarReader& tar, const TarMember& first) : tar_(tar) {
    sample_.name = split_name(first.name).name;
    sample_.offset = first.header_offset;
    where_ = tar.where(first);
  }

  void add(const TarMember& member) {
    sample_.bytes = member.end_offset - sample_.offset;
    const std::string extension = lower(split_name(member.name).extension);
    const std::size_t dot = extension.find('.');
    const std::string_view number =
        dot == std::string::npos ? std::string_view() : std::string_view(extension).substr(0, dot);
    const std::string_view format =
        std::string_view(extension).substr(dot == std::string::npos ? 0 : dot + 1);
    if (extension == "json") {
      if (has_text_) {
        throw InvalidInput(
            fmt::format("{}: a second text of sample '{}'", tar_.where(member), sample_.name));
      }
      sample_.text = member;
      has_text_ = true;
    } else if (contains(kImageExtensions, format)) {
      images_.emplace_back(number_of(member, number, "an image"), member);
    } else if (format == kAudioExtension) {
      audio_.emplace_back(number_of(member, number, "a clip"), member);
    } else if (contains(kRefusedExtensions, format)) {
      throw InvalidInput(fmt::format(
          "{}: '.{}' members cannot be read; images must be PNG or JPEG, audio WAV, and video "
          "is not supported in shards",
          tar_.where(member),
          format));
    } else {
      sample_.ignored.push_back("." + extension);
    }
  }

  ShardSample finish() {
    if (!has_text_) {
      throw InvalidInput(
          fmt::format("{}: sample '{}' has no '{}.json'", where_, sample_.name, sample_.name));
    }
    sample_.images = ordered(images_, "images");
    sample_.audio = ordered(audio_, "clips");
    return std::move(sample_);
  }

 private:
  using Numbered = std::vector<std::pair<int, TarMember>>;

  [[nodiscard]] std::vector<TarMember> ordered(Numbered& members, const char* what) const {
    std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
      return a.first < b.first;
    });
    std::vector<TarMember> result;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const int expected = members.size() == 1 && members[i].first < 0 ? -1 : static_cast<int>(i);
      if (members[i].first != expected) {
        throw InvalidInput(fmt::format(
            "{}: the {} of sample '{}' are not numbered 0 to {}; a single one may go without "
            "number",
            tar_.where(members[i].second),
            what,
            sample_.name,
            members.size() - 1));
      }
      result.push_back(std::move(members[i].second));
    }
    return result;
  }

  // -1: the member has no number.
  [[nodiscard]] int number_of(const TarMember& member,
                              std::string_view text,
                              const char* what) const {
    if (text.empty()) {
      return -1;
    }
    int number = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < 0) {
      throw InvalidInput(fmt::format(
          "{}: '{}' is not the number of {}; named NAME.png or NAME.0.png, NAME.1.png …",
          tar_.where(member),
          text,
          what));
    }
    return number;
  }

  const TarReader& tar_;
  std::string where_;
  ShardSample sample_;
  bool has_text_ = false;
  Numbered images_;
  Numbered audio_;
};

// Takes the members of one sample from `tar`; `ahead` holds the member behind them afterwards.
ShardSample take_sample(TarReader& tar, std::optional<TarMember>& ahead) {
  SampleBuilder builder(tar, *ahead);
  const std::string name(split_name(ahead->name).name);
  if (name.empty()) {
    throw InvalidInput(fmt::format(
        "{}: members are named NAME.json, NAME.png …; this one has no name or no extension",
        tar.where(*ahead)));
  }
  while (ahead && split_name(ahead->name).name == name) {
    builder.add(*ahead);
    ahead = tar.next();
  }
  return builder.finish();
}

}  // namespace

ShardReader::ShardReader(const std::filesystem::path& shard) : tar_(shard), ahead_(tar_.next()) {}

std::optional<ShardSample> ShardReader::next() {
  if (!ahead_) {
    return std::nullopt;
  }
  return take_sample(tar_, ahead_);
}

std::string sample_id(const std::filesystem::path& shard, const std::string& name) {
  std::string split = shard.stem().string();
  const std::size_t dash = split.rfind('-');
  const bool numbered = dash != std::string::npos && dash > 0 && dash + 1 < split.size() &&
                        split.find_first_not_of("0123456789", dash + 1) == std::string::npos;
  if (numbered) {
    split.erase(dash);
  }
  return split + "/" + name;
}

RawSample read_sample(const std::filesystem::path& shard,
                      const SampleLocation& location,
                      const std::string& id) {
  const std::string where =
      fmt::format("sample '{}' in shard '{}' at offset {}", id, shard.string(), location.offset);
  try {
    TarReader tar(
        read_range(shard, location.offset, location.bytes), shard.string(), location.offset);
    std::optional<TarMember> ahead = tar.next();
    if (!ahead) {
      throw InvalidInput("nothing stands there");
    }
    const ShardSample sample = take_sample(tar, ahead);
    const std::string found = sample_id(shard, sample.name);
    if (ahead || found != id) {
      throw InvalidInput(ahead ? "more than one sample stands there"
                               : fmt::format("sample '{}' stands there", found));
    }
    RawSample raw;
    raw.text = tar.content(sample.text);
    for (const TarMember& image : sample.images) {
      raw.images.push_back(tar.content(image));
    }
    for (const TarMember& clip : sample.audio) {
      raw.audio.push_back(tar.content(clip));
    }
    return raw;
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format(
        "{}: {}; if the shard changed or moved since it was indexed, make the index anew",
        where,
        error.what()));
  } catch (const SystemFailure& error) {
    throw SystemFailure(fmt::format("{}: {}", where, error.what()));
  }
}

}  // namespace entrain
