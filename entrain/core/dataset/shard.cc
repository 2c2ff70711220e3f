#include "entrain/core/dataset/shard.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/member_name.h"

namespace entrain {
namespace {

constexpr std::array<std::string_view, 5> kImageExtensions = {"png", "jpg", "jpeg", "webp", "gif"};
constexpr std::array<std::string_view, 5> kAudioExtensions = {"wav", "flac", "mp3", "ogg", "opus"};
constexpr std::array<std::string_view, 5> kVideoExtensions = {"mp4", "webm", "mkv", "mov", "avi"};
// Content that must not be dropped in silence, with the command that makes it readable.
struct RefusedExtensions {
  std::vector<std::string_view> extensions;
  std::string_view way_out;
};
const std::array<RefusedExtensions, 3> kRefusedExtensions = {
    {{{"bmp", "tif", "tiff", "avif", "heic", "heif", "jp2", "jxl"},
      "images must be PNG, JPEG, WebP or GIF: `magick x.{0} x.png`"},
     {{"m4a", "aac", "wma", "aiff"},
      "audio must be WAV, FLAC, MP3, Ogg Vorbis or Ogg Opus: `ffmpeg -i x.{0} x.flac`"},
     {{"mpg", "mpeg", "m4v", "flv", "wmv", "ogv", "3gp"},
      "video must be MP4, WebM, MKV, MOV, AVI or frames: `ffmpeg -i x.{0} x.mp4`"}}};

template <class List>
bool contains(const List& list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// Finds the roles of one sample's members.
class SampleBuilder {
 public:
  SampleBuilder(const TarReader& tar,
                std::string_view key,
                const std::vector<TarMember>& members,
                const ColumnMap& columns)
      : tar_(tar), members_(members), columns_(columns) {
    sample_.name = key;
    sample_.offset = members.front().header_offset;
    sample_.bytes = members.back().end_offset - sample_.offset;
    for (const TarMember& member : members) {
      extensions_.push_back(lower(split_name(member.name).extension));
    }
  }

  ShardSample build() {
    refuse_repeats();
    const std::size_t text = columns_.texts_are_members() ? add_texts() : text_member();
    sample_.text = members_[text];
    sample_.caption = extensions_[text] == "txt";
    add_named_media();
    const std::string field(field_of(extensions_[text]));
    Numbered images;
    Numbered audio;
    std::map<int, Numbered> videos;  // by number; their frames
    Numbered video_files;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (named_.contains(i)) {
        continue;
      }
      const std::string_view format = format_of(extensions_[i]);
      std::string_view number = field_of(extensions_[i]);
      if (!field.empty() && number.starts_with(field)) {  // the name has dots: NAME.FIELD
        number.remove_prefix(std::min(number.size(), field.size() + 1));
      }
      const std::size_t digits = number.find_first_not_of("0123456789");
      const bool frame = digits != std::string_view::npos && digits > 0 && number[digits] == '.' &&
                         digits + 1 < number.size();
      if (is_replaced(format)) {
        sample_.ignored.push_back("." + extensions_[i]);
      } else if (contains(kImageExtensions, format) && frame) {
        videos[number_of(members_[i], number.substr(0, digits), "a video")].emplace_back(
            number_of(members_[i], number.substr(digits + 1), "a frame"), members_[i]);
      } else if (contains(kImageExtensions, format)) {
        images.emplace_back(number_of(members_[i], number, "an image"), members_[i]);
      } else if (contains(kAudioExtensions, format)) {
        audio.emplace_back(number_of(members_[i], number, "a clip"), members_[i]);
      } else if (contains(kVideoExtensions, format)) {
        video_files.emplace_back(number_of(members_[i], number, "a video"), members_[i]);
      } else if (i != text) {
        refuse_unreadable(members_[i], format);
        sample_.ignored.push_back("." + extensions_[i]);
      }
    }
    if (!images.empty()) {
      sample_.images = ordered(images, "images");
    }
    add_videos(videos, video_files);
    if (!audio.empty()) {
      sample_.audio = ordered(audio, "clips");
    }
    return std::move(sample_);
  }

 private:
  using Numbered = std::vector<std::pair<int, TarMember>>;

  // The member that the columns name, and the place in it; none if the sample has none of them.
  [[nodiscard]] std::optional<std::pair<std::size_t, std::string>> member_of(
      std::string_view theirs) const {
    for (const MemberPlace& place : member_places(theirs)) {
      const auto found = std::ranges::find(extensions_, place.extension);
      if (found != extensions_.end()) {
        return std::pair(static_cast<std::size_t>(found - extensions_.begin()), place.steps);
      }
    }
    return std::nullopt;
  }

  // Texts that the columns name; returns the position of the first one's member.
  std::size_t add_texts() {
    std::optional<std::size_t> first;
    for (const ColumnMap::Column& column : columns_.columns()) {
      if (is_medium(column.ours)) {
        continue;
      }
      const auto found = member_of(column.theirs);
      if (!found) {
        throw InvalidInput(
            fmt::format("{}: sample '{}' has no '{}', which is to be the {}; it has {}",
                        tar_.where(members_.front()),
                        sample_.name,
                        column.theirs,
                        column.ours,
                        join(extensions_)));
      }
      sample_.texts.push_back({column.ours,
                               members_[found->first],
                               format_of(extensions_[found->first]) == "json",
                               found->second});
      named_.insert(found->first);
      first = first.value_or(found->first);
    }
    return first.value();
  }

  void add_named_media() {
    for (const ColumnMap::Column& column : columns_.columns()) {
      const auto found = is_medium(column.ours) ? member_of(column.theirs) : std::nullopt;
      if (!found) {
        continue;
      }
      const TarMember& member = members_[found->first];
      refuse_unreadable(member, format_of(extensions_[found->first]));
      named_.insert(found->first);
      if (column.ours == "image") {
        sample_.images.push_back(member);
      } else if (column.ours == "audio") {
        sample_.audio.push_back(member);
      } else {
        sample_.videos.push_back({{}, member});
      }
    }
  }

  // Whether the columns say which members of that format count, and this is none of them.
  [[nodiscard]] bool is_replaced(std::string_view format) const {
    return (contains(kImageExtensions, format) && columns_.theirs_of("image")) ||
           (contains(kAudioExtensions, format) && columns_.theirs_of("audio")) ||
           (contains(kVideoExtensions, format) && columns_.theirs_of("video"));
  }

  // Files and frames together are numbered; a file without number is the only video.
  void add_videos(std::map<int, Numbered>& frames, Numbered& files) {
    std::map<int, ShardVideo> videos;
    for (auto& [number, members] : frames) {
      videos[number].frames = ordered(members, fmt::format("frames of video {}", number));
    }
    const bool alone = frames.empty() && files.size() == 1 && files.front().first < 0;
    for (auto& [number, member] : files) {
      ShardVideo& video = videos[alone ? 0 : number];
      if (video.file || !video.frames.empty()) {
        throw InvalidInput(fmt::format(
            "{}: a video of sample '{}' is there twice, as frames or in another format; a single "
            "file may go without number, several are NAME.0.mp4, NAME.1.mp4 …{}",
            tar_.where(member),
            sample_.name,
            hint()));
      }
      video.file = std::move(member);
    }
    for (auto& [number, video] : videos) {
      if (number != std::ssize(sample_.videos)) {
        const TarMember& first = video.file ? *video.file : video.frames.front();
        throw InvalidInput(fmt::format("{}: the videos of sample '{}' are not numbered 0 to {}{}",
                                       tar_.where(first),
                                       sample_.name,
                                       videos.size() - 1,
                                       hint()));
      }
      sample_.videos.push_back(std::move(video));
    }
  }

  // "; by the first dot, …" where names with dots may be the reason.
  [[nodiscard]] std::string hint() const {
    return fmt::format(
        "; a sample is what shares its name up to the first dot, here '{}': if these are several "
        "samples, rename them",
        sample_.name);
  }

  void refuse_unreadable(const TarMember& member, std::string_view format) const {
    for (const RefusedExtensions& refused : kRefusedExtensions) {
      if (contains(refused.extensions, format)) {
        throw InvalidInput(fmt::format("{}: '.{}' members cannot be read; {}",
                                       tar_.where(member),
                                       format,
                                       fmt::format(fmt::runtime(refused.way_out), format)));
      }
    }
  }

  void refuse_repeats() const {
    for (std::size_t i = 0; i < extensions_.size(); ++i) {
      if (std::find(extensions_.begin(),
                    extensions_.begin() + static_cast<std::ptrdiff_t>(i),
                    extensions_[i]) != extensions_.begin() + static_cast<std::ptrdiff_t>(i)) {
        throw InvalidInput(fmt::format("{}: a second '.{}' of sample '{}'",
                                       tar_.where(members_[i]),
                                       extensions_[i],
                                       sample_.name));
      }
    }
  }

  // NAME.json; else the only NAME.….json; else NAME.txt.
  [[nodiscard]] std::size_t text_member() const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < extensions_.size(); ++i) {
      if (extensions_[i] == "json") {
        return i;
      }
      if (format_of(extensions_[i]) == "json") {
        found.push_back(i);
      }
    }
    const std::string where = tar_.where(members_.front());
    if (found.empty()) {
      const auto caption = std::find(extensions_.begin(), extensions_.end(), "txt");
      if (caption != extensions_.end()) {
        return static_cast<std::size_t>(caption - extensions_.begin());
      }
      throw InvalidInput(fmt::format("{}: sample '{}' has no '{}.json' and no '{}.txt'",
                                     where,
                                     sample_.name,
                                     sample_.name,
                                     sample_.name));
    }
    if (found.size() > 1) {
      throw InvalidInput(fmt::format("{}: sample '{}' has '{}' and '{}', and no '{}.json'{}",
                                     where,
                                     sample_.name,
                                     members_[found[0]].name,
                                     members_[found[1]].name,
                                     sample_.name,
                                     hint()));
    }
    return found.front();
  }

  [[nodiscard]] std::vector<TarMember> ordered(Numbered& members, const std::string& what) const {
    std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
      return a.first < b.first;
    });
    std::vector<TarMember> result;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const int expected = members.size() == 1 && members[i].first < 0 ? -1 : static_cast<int>(i);
      if (members[i].first != expected) {
        throw InvalidInput(fmt::format(
            "{}: the {} of sample '{}' are not numbered 0 to {}; a single one may go without "
            "number{}",
            tar_.where(members[i].second),
            what,
            sample_.name,
            members.size() - 1,
            hint()));
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
      throw InvalidInput(
          fmt::format("{}: '{}' is not the number of {}; named NAME.png or NAME.0.png, "
                      "NAME.1.png …, frames of videos NAME.0.0000.png, NAME.0.0001.png …{}",
                      tar_.where(member),
                      text,
                      what,
                      hint()));
    }
    return number;
  }

  const TarReader& tar_;
  const std::vector<TarMember>& members_;
  const ColumnMap& columns_;
  std::set<std::size_t> named_;          // members that the columns name
  std::vector<std::string> extensions_;  // [member] in lower case
  ShardSample sample_;
};

// "train-000003" of ".../train-000003.tar.gz".
std::string shard_name(const std::filesystem::path& shard) {
  const std::filesystem::path name =
      shard.extension() == ".gz" ? shard.stem() : std::filesystem::path(shard.filename());
  return name.stem().string();
}

constexpr std::int64_t kOneRead = 4 << 20;  // bytes; more are read member by member

TarReader open_range(const std::filesystem::path& shard, std::int64_t offset, std::int64_t bytes) {
  if (bytes > kOneRead) {
    return {shard, offset, bytes};
  }
  return {read_range(shard, offset, bytes), shard.string(), offset};
}

// The sample whose first and last members are the first and last ones of `tar`.
ShardSample only_sample(TarReader& tar, const ColumnMap& columns) {
  std::optional<TarMember> member = tar.next();
  if (!member) {
    throw InvalidInput("nothing stands there");
  }
  const std::string key(split_name(member->name).key);
  if (key.empty()) {
    throw InvalidInput(fmt::format("member '{}' stands there", member->name));
  }
  std::vector<TarMember> members;
  bool last = false;
  for (; member; member = tar.next()) {
    last = split_name(member->name).key == key && reason_to_skip(member->name).empty();
    if (last) {
      members.push_back(std::move(*member));
    }
  }
  if (!last) {
    throw InvalidInput("more than one sample stands there");
  }
  return SampleBuilder(tar, key, members, columns).build();
}

}  // namespace

ShardReader::ShardReader(const std::filesystem::path& shard, ColumnMap columns)
    : tar_(shard), columns_(std::move(columns)) {
  columns_.require_members_of_media(fmt::format("'{}'", shard.string()));
  std::unordered_map<std::string, std::size_t> known;
  std::size_t previous = 0;
  while (std::optional<TarMember> member = tar_.next()) {
    const std::string reason = reason_to_skip(member->name);
    if (!reason.empty()) {
      ++skipped_[reason];
      continue;
    }
    const std::string key(split_name(member->name).key);
    const auto [place, fresh] = known.emplace(key, keys_.size());
    if (fresh) {
      keys_.push_back(key);
      members_.emplace_back();
      scattered_.push_back(0);
    } else if (place->second != previous) {
      scattered_[place->second] = 1;
    }
    previous = place->second;
    members_[previous].push_back(std::move(*member));
  }
  require_media(shard);
}

// A sample may lack a medium; a member that all lack is misspelled.
void ShardReader::require_media(const std::filesystem::path& shard) const {
  for (const ColumnMap::Column& column : columns_.columns()) {
    if (keys_.empty() || column.theirs.empty() || !is_medium(column.ours)) {
      continue;
    }
    std::set<std::string> known;
    for (const std::vector<TarMember>& members : members_) {
      for (const TarMember& member : members) {
        known.insert(lower(split_name(member.name).extension));
      }
    }
    const std::vector<MemberPlace> places = member_places(column.theirs);
    if (std::none_of(places.begin(), places.end(), [&](const MemberPlace& place) {
          return known.contains(place.extension);
        })) {
      throw InvalidInput(fmt::format("'{}': no sample has '{}'; the members are {}",
                                     shard.string(),
                                     column.theirs,
                                     join(std::vector<std::string>(known.begin(), known.end()))));
    }
  }
}

std::vector<std::string> ShardReader::member_names() const {
  std::vector<std::string> names;
  for (const std::vector<TarMember>& members : members_) {
    for (const TarMember& member : members) {
      names.push_back(member.name);
    }
  }
  return names;
}

std::optional<ShardSample> ShardReader::next() {
  if (next_ == keys_.size()) {
    return std::nullopt;
  }
  const std::size_t sample = next_++;
  ShardSample result = SampleBuilder(tar_, keys_[sample], members_[sample], columns_).build();
  result.scattered = scattered_[sample] != 0;
  return result;
}

bool is_compressed_shard(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".tar.gz") || name.ends_with(".tgz");
}

std::string sample_id(const std::filesystem::path& shard, const std::string& name) {
  std::string split = shard_name(shard);
  const std::size_t dash = split.rfind('-');
  const bool numbered = dash != std::string::npos && dash > 0 && dash + 1 < split.size() &&
                        split.find_first_not_of("0123456789", dash + 1) == std::string::npos;
  if (numbered) {
    split.erase(dash);
  }
  return split + "/" + name;
}

PlacedSample sample_at(const std::filesystem::path& shard,
                       std::int64_t offset,
                       std::int64_t bytes,
                       const ColumnMap& columns) {
  TarReader tar = open_range(shard, offset, bytes);
  ShardSample sample = only_sample(tar, columns);
  return {std::move(tar), std::move(sample)};
}

}  // namespace entrain
