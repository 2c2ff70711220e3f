#include "entrain/core/dataset/shard.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/energon.h"
#include "entrain/core/dataset/media_refs.h"
#include "entrain/core/dataset/member_name.h"

namespace entrain {
namespace {

// A caption as the JSON of a sample.
MediaBytes caption_json(const MediaBytes& text) {
  const std::string content = text.content();
  const std::size_t end = content.find_last_not_of("\r\n");
  try {
    Json document;
    document["caption"] = content.substr(0, end == std::string::npos ? 0 : end + 1);
    return bytes_in_memory(document.dump(), text.where);
  } catch (const nlohmann::json::exception&) {
    throw InvalidInput(fmt::format("{}: its text is not UTF-8", text.where));
  }
}

// The JSON of a sample under our names.
MediaBytes renamed_json(const MediaBytes& text, const ColumnMap& columns) {
  const std::string content = text.content();
  const Json document = parse_json(content, text.where);
  if (!document.is_object()) {
    throw InvalidInput(fmt::format("{}: a JSON object is needed", text.where));
  }
  return bytes_in_memory(columns.renamed(document, content, text.where).dump(), text.where);
}

// Finds the roles of one sample's members.
class SampleBuilder {
 public:
  // `image_sizes`: by member, of images that need not be opened.
  SampleBuilder(const std::filesystem::path& shard,
                std::shared_ptr<TarReader> tar,
                const std::string& key,
                const std::vector<TarMember>& members,
                const ColumnMap& columns,
                const std::unordered_map<std::string, ImageSize>& image_sizes)
      : tar_(std::move(tar)),
        name_(key),
        members_(members),
        columns_(columns),
        image_sizes_(image_sizes) {
    found_.id = sample_id(shard, key);
    found_.offset = members.front().header_offset;
    found_.size = members.back().end_offset - found_.offset;
    for (const TarMember& member : members) {
      extensions_.push_back(lower(split_name(member.name).extension));
    }
  }

  FoundSample build() {
    refuse_repeats();
    const std::size_t text = columns_.texts_are_members() ? add_texts() : text_member();
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
      const std::string_view medium = medium_of(format);
      if (!medium.empty() && columns_.theirs_of(medium)) {  // other members are that medium
        found_.ignored.push_back("." + extensions_[i]);
      } else if (medium == "image" && frame) {
        videos[number_of(members_[i], number.substr(0, digits), "a video")].emplace_back(
            number_of(members_[i], number.substr(digits + 1), "a frame"), members_[i]);
      } else if (medium == "image") {
        images.emplace_back(number_of(members_[i], number, "an image"), members_[i]);
      } else if (medium == "audio") {
        audio.emplace_back(number_of(members_[i], number, "a clip"), members_[i]);
      } else if (medium == "video") {
        video_files.emplace_back(number_of(members_[i], number, "a video"), members_[i]);
      } else if (i != text) {
        refuse_unreadable(members_[i], format);
        found_.ignored.push_back("." + extensions_[i]);
      }
    }
    for (const TarMember& image : ordered(images, "images")) {
      add_image(image);
    }
    add_videos(videos, video_files);
    for (const TarMember& clip : ordered(audio, "clips")) {
      found_.audio.push_back(bytes_of(clip));
    }
    found_.text = text_json(text);
    return std::move(found_);
  }

 private:
  using Numbered = std::vector<std::pair<int, TarMember>>;
  // A text that the columns place in a member.
  struct NamedText {
    std::string ours;
    std::size_t member = 0;
    std::string steps;  // the place in its JSON; empty: all of it
  };

  [[nodiscard]] MediaBytes bytes_of(const TarMember& member) const {
    return {tar_->where(member),
            member.size,
            [tar = tar_, member](std::int64_t offset, std::int64_t count) {
              return tar->content_at(member, offset, count);
            }};
  }

  void add_image(const TarMember& member) {
    found_.images.push_back(bytes_of(member));
    if (const auto size = image_sizes_.find(member.name); size != image_sizes_.end()) {
      found_.images.back().known = size->second;
    }
  }

  // The sample's text as JSON under our names, from the member at that position or those that the
  // columns name.
  [[nodiscard]] MediaBytes text_json(std::size_t text) const {
    if (!texts_.empty()) {
      return texts_json();
    }
    MediaBytes json = bytes_of(members_[text]);
    if (extensions_[text] == "txt") {
      json = caption_json(json);
    }
    return columns_.maps_texts() ? renamed_json(json, columns_) : json;
  }

  [[nodiscard]] MediaBytes texts_json() const {
    Json document = Json::object();
    for (const NamedText& text : texts_) {
      const MediaBytes member = bytes_of(members_[text.member]);
      if (format_of(extensions_[text.member]) == "json") {
        const std::string content = member.content();
        document[text.ours] =
            value_of_member(parse_json(content, member.where), text.steps, content, member.where);
      } else if (text.steps.empty()) {
        document[text.ours] = parse_json(caption_json(member).content(), member.where)["caption"];
      } else {
        throw InvalidInput(
            fmt::format("{}: {} is a place in JSON, and this is none", member.where, text.steps));
      }
    }
    return bytes_in_memory(document.dump(), tar_->where(members_[texts_.front().member]));
  }

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
    for (const ColumnMap::Column& column : columns_.columns()) {
      if (is_medium(column.ours)) {
        continue;
      }
      const auto found = member_of(column.theirs);
      if (!found) {
        throw InvalidInput(
            fmt::format("{}: sample '{}' has no '{}', which is to be the {}; it has {}",
                        tar_->where(members_.front()),
                        name_,
                        column.theirs,
                        column.ours,
                        join(extensions_)));
      }
      texts_.push_back({column.ours, found->first, found->second});
      named_.insert(found->first);
    }
    return texts_.front().member;
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
        add_image(member);
      } else if (column.ours == "audio") {
        found_.audio.push_back(bytes_of(member));
      } else {
        found_.videos.push_back({{}, bytes_of(member)});
      }
    }
  }

  // Files and frames together are numbered; a file without number is the only video.
  void add_videos(std::map<int, Numbered>& frames, Numbered& files) {
    std::map<int, FoundVideo> videos;
    for (auto& [number, members] : frames) {
      for (const TarMember& frame : ordered(members, fmt::format("frames of video {}", number))) {
        videos[number].frames.push_back(bytes_of(frame));
      }
    }
    const bool alone = frames.empty() && files.size() == 1 && files.front().first < 0;
    for (auto& [number, member] : files) {
      FoundVideo& video = videos[alone ? 0 : number];
      if (video.file || !video.frames.empty()) {
        throw InvalidInput(fmt::format(
            "{}: a video of sample '{}' is there twice, as frames or in another format; a single "
            "file may go without number, several are NAME.0.mp4, NAME.1.mp4 …{}",
            tar_->where(member),
            name_,
            hint()));
      }
      video.file = bytes_of(member);
    }
    for (auto& [number, video] : videos) {
      if (number != std::ssize(found_.videos)) {
        const MediaBytes& first = video.file ? *video.file : video.frames.front();
        throw InvalidInput(fmt::format("{}: the videos of sample '{}' are not numbered 0 to {}{}",
                                       first.where,
                                       name_,
                                       videos.size() - 1,
                                       hint()));
      }
      found_.videos.push_back(std::move(video));
    }
  }

  // "; by the first dot, …" where names with dots may be the reason.
  [[nodiscard]] std::string hint() const {
    return fmt::format(
        "; a sample is what shares its name up to the first dot, here '{}': if these are several "
        "samples, rename them",
        name_);
  }

  void refuse_unreadable(const TarMember& member, std::string_view format) const {
    if (const std::string way_out = way_out_of(format); !way_out.empty()) {
      throw InvalidInput(fmt::format(
          "{}: '.{}' members cannot be read; {}", tar_->where(member), format, way_out));
    }
  }

  void refuse_repeats() const {
    std::set<std::string_view> seen;
    for (std::size_t i = 0; i < extensions_.size(); ++i) {
      if (!seen.insert(extensions_[i]).second) {
        throw InvalidInput(fmt::format(
            "{}: a second '.{}' of sample '{}'", tar_->where(members_[i]), extensions_[i], name_));
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
    const std::string where = tar_->where(members_.front());
    if (found.empty()) {
      const auto caption = std::find(extensions_.begin(), extensions_.end(), "txt");
      if (caption != extensions_.end()) {
        return static_cast<std::size_t>(caption - extensions_.begin());
      }
      throw InvalidInput(fmt::format(
          "{}: sample '{}' has no '{}.json' and no '{}.txt'", where, name_, name_, name_));
    }
    if (found.size() > 1) {
      throw InvalidInput(fmt::format("{}: sample '{}' has '{}' and '{}', and no '{}.json'{}",
                                     where,
                                     name_,
                                     members_[found[0]].name,
                                     members_[found[1]].name,
                                     name_,
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
            tar_->where(members[i].second),
            what,
            name_,
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
                      tar_->where(member),
                      text,
                      what,
                      hint()));
    }
    return number;
  }

  const std::shared_ptr<TarReader> tar_;
  const std::string& name_;  // the key of its members
  const std::vector<TarMember>& members_;
  const ColumnMap& columns_;
  const std::unordered_map<std::string, ImageSize>& image_sizes_;
  std::set<std::size_t> named_;          // members that the columns name
  std::vector<std::string> extensions_;  // [member] in lower case
  std::vector<NamedText> texts_;
  FoundSample found_;
};

constexpr std::int64_t kOneRead = 4 << 20;  // bytes; more are read member by member

TarReader open_range(const SampleLocation& location) {
  if (location.bytes > kOneRead) {
    return {location.shard, location.offset, location.bytes};
  }
  return {
      read_range(location.shard, location.offset, location.bytes), location.shard, location.offset};
}

}  // namespace

ShardReader::ShardReader(const std::filesystem::path& shard,
                         ColumnMap columns,
                         const std::filesystem::path& image_sizes)
    : shard_(shard), tar_(std::make_shared<TarReader>(shard)), columns_(std::move(columns)) {
  columns_.require_members_of_media(fmt::format("'{}'", shard.string()));
  std::unordered_map<std::string, std::size_t> known;
  std::size_t previous = 0;
  while (std::optional<TarMember> member = tar_->next()) {
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
  require_media();
  if (!image_sizes.empty()) {
    std::vector<std::string> names;
    for (const std::vector<TarMember>& of_sample : members_) {
      for (const TarMember& member : of_sample) {
        names.push_back(member.name);
      }
    }
    image_sizes_ = read_image_sizes(image_sizes, names);
  }
}

// A sample may lack a medium; a member that all lack is misspelled.
void ShardReader::require_media() const {
  for (const ColumnMap::Column& column : columns_.columns()) {
    if (keys_.empty() || column.theirs.empty() || !is_medium(column.ours)) {
      continue;
    }
    std::set<std::string> known;
    for (const std::vector<TarMember>& of_sample : members_) {
      for (const TarMember& member : of_sample) {
        known.insert(lower(split_name(member.name).extension));
      }
    }
    const std::vector<MemberPlace> places = member_places(column.theirs);
    if (std::none_of(places.begin(), places.end(), [&](const MemberPlace& place) {
          return known.contains(place.extension);
        })) {
      throw InvalidInput(fmt::format("'{}': no sample has '{}'; the members are {}",
                                     shard_.string(),
                                     column.theirs,
                                     join(std::vector<std::string>(known.begin(), known.end()))));
    }
  }
}

std::string ShardReader::upcoming() const {
  return sample_id(shard_, keys_.at(next_));
}

FoundSample ShardReader::next() {
  const std::size_t sample = next_++;
  SampleBuilder builder(shard_, tar_, keys_.at(sample), members_[sample], columns_, image_sizes_);
  FoundSample result = builder.build();
  result.scattered = scattered_[sample] != 0;
  return result;
}

bool is_compressed_shard(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".tar.gz") || name.ends_with(".tgz");
}

std::string sample_id(const std::filesystem::path& shard, const std::string& name) {
  // "train-000003" of ".../train-000003.tar.gz"
  const std::filesystem::path file = shard.extension() == ".gz" ? shard.stem() : shard.filename();
  std::string split = file.stem().string();
  const std::size_t dash = split.rfind('-');
  const bool numbered = dash != std::string::npos && dash > 0 && dash + 1 < split.size() &&
                        split.find_first_not_of("0123456789", dash + 1) == std::string::npos;
  if (numbered) {
    split.erase(dash);
  }
  return split + "/" + name;
}

FoundSample sample_at(const SampleLocation& location) {
  const ColumnMap columns(location.columns);
  const auto tar = std::make_shared<TarReader>(open_range(location));
  std::optional<TarMember> member = tar->next();
  if (!member) {
    throw InvalidInput("nothing stands there");
  }
  const std::string key(split_name(member->name).key);
  if (key.empty()) {
    throw InvalidInput(fmt::format("member '{}' stands there", member->name));
  }
  std::vector<TarMember> members;
  bool last = false;  // the sample's own member is the last one there
  for (; member; member = tar->next()) {
    last = split_name(member->name).key == key && reason_to_skip(member->name).empty();
    if (last) {
      members.push_back(std::move(*member));
    }
  }
  if (!last) {
    throw InvalidInput("more than one sample stands there");
  }
  return SampleBuilder(location.shard, tar, key, members, columns, {}).build();
}

}  // namespace entrain
