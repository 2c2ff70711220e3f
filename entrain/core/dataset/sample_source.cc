#include "entrain/core/dataset/sample_source.h"

#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/energon.h"
#include "entrain/core/dataset/media_refs.h"
#include "entrain/core/dataset/records.h"
#include "entrain/core/dataset/shard.h"
#include "entrain/core/dataset/table.h"

namespace entrain {
namespace {

MediaBytes bytes_of(TarReader& tar, TarMember member) {
  std::string where = tar.where(member);
  const std::int64_t size = member.size;
  return {std::move(where),
          size,
          [&tar, member = std::move(member)](std::int64_t offset, std::int64_t count) {
            return tar.content_at(member, offset, count);
          }};
}

std::vector<MediaBytes> bytes_of(TarReader& tar, std::vector<TarMember> members) {
  std::vector<MediaBytes> result;
  for (TarMember& member : members) {
    result.push_back(bytes_of(tar, std::move(member)));
  }
  return result;
}

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

// Texts in members of their own as the JSON of a sample.
MediaBytes texts_json(TarReader& tar, const std::vector<ShardText>& texts) {
  Json document = Json::object();
  for (const ShardText& text : texts) {
    const MediaBytes member = bytes_of(tar, text.member);
    if (text.json) {
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
  return bytes_in_memory(document.dump(), bytes_of(tar, texts.front().member).where);
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

FoundSample found_in(const std::filesystem::path& shard,
                     TarReader& tar,
                     ShardSample sample,
                     const ColumnMap& columns) {
  FoundSample found;
  found.id = sample_id(shard, sample.name);
  found.offset = sample.offset;
  found.size = sample.bytes;
  found.scattered = sample.scattered;
  found.text = bytes_of(tar, std::move(sample.text));
  if (sample.caption && sample.texts.empty()) {
    found.text = caption_json(found.text);
  }
  if (!sample.texts.empty()) {
    found.text = texts_json(tar, sample.texts);
  } else if (columns.maps_texts()) {
    found.text = renamed_json(found.text, columns);
  }
  found.images = bytes_of(tar, std::move(sample.images));
  for (ShardVideo& video : sample.videos) {
    FoundVideo& one = found.videos.emplace_back();
    one.frames = bytes_of(tar, std::move(video.frames));
    if (video.file) {
      one.file = bytes_of(tar, std::move(*video.file));
    }
  }
  found.audio = bytes_of(tar, std::move(sample.audio));
  found.ignored = std::move(sample.ignored);
  return found;
}

class ShardSource : public SampleSource {
 public:
  ShardSource(const std::filesystem::path& shard,
              const ColumnMap& columns,
              const std::filesystem::path& image_sizes)
      : shard_(shard), columns_(columns), reader_(shard, columns) {
    if (!image_sizes.empty()) {
      sizes_ = read_image_sizes(image_sizes, reader_.member_names());
    }
  }

  [[nodiscard]] std::int64_t num_samples() const override { return reader_.num_samples(); }
  [[nodiscard]] std::string upcoming() const override {
    return sample_id(shard_, reader_.upcoming());
  }
  FoundSample next() override {
    ShardSample sample = std::move(reader_.next().value());
    std::vector<std::optional<ImageSize>> known;
    for (const TarMember& image : sample.images) {
      const auto size = sizes_.find(image.name);
      known.push_back(size == sizes_.end() ? std::nullopt : std::optional(size->second));
    }
    FoundSample found = found_in(shard_, reader_.tar(), std::move(sample), columns_);
    for (std::size_t i = 0; i < known.size(); ++i) {
      found.images[i].known = known[i];
    }
    return found;
  }
  [[nodiscard]] std::map<std::string, std::int64_t> skipped() const override {
    return reader_.skipped();
  }

 private:
  std::filesystem::path shard_;
  ColumnMap columns_;
  ShardReader reader_;
  std::unordered_map<std::string, ImageSize> sizes_;  // of images that are not opened, by member
};

std::vector<std::string> contents_of(const std::vector<MediaBytes>& media) {
  std::vector<std::string> result;
  for (const MediaBytes& one : media) {
    result.push_back(one.content());
  }
  return result;
}

RawSample content_of(const FoundSample& found, const std::string& id) {
  if (found.id != id && !id.ends_with("/" + found.id)) {  // NAME/… of named data
    throw InvalidInput(fmt::format("sample '{}' stands there", found.id));
  }
  RawSample raw;
  raw.text = found.text.content();
  raw.images = contents_of(found.images);
  for (const FoundVideo& video : found.videos) {
    RawVideo& one = raw.videos.emplace_back();
    one.frames = contents_of(video.frames);
    if (video.file) {
      one.file = video_file_of(*video.file);
    }
  }
  raw.audio = contents_of(found.audio);
  return raw;
}

RawSample read_at(const SampleLocation& location, const std::string& id) {
  const std::filesystem::path file = location.shard;
  if (is_record_file(file)) {
    return content_of(read_record(location, id), id);
  }
  if (is_table_file(file)) {
    return content_of(read_row(location), id);
  }
  if (is_compressed_shard(file)) {
    throw InvalidInput("the shard is compressed and samples are read at offsets; unpack it");
  }
  const ColumnMap columns(location.columns);
  PlacedSample placed = sample_at(file, location.offset, location.bytes, columns);
  return content_of(found_in(file, placed.tar, std::move(placed.sample), columns), id);
}

}  // namespace

std::unique_ptr<SampleSource> open_samples(const std::filesystem::path& file,
                                           const std::filesystem::path& media,
                                           const ColumnMap& columns,
                                           const std::filesystem::path& image_sizes) {
  if (is_record_file(file)) {
    return std::make_unique<RecordReader>(file, media, columns);
  }
  if (is_table_file(file)) {
    return std::make_unique<TableReader>(file, media, columns);
  }
  return std::make_unique<ShardSource>(file, columns, image_sizes);
}

RawSample read_sample(const SampleLocation& location, const std::string& id) {
  const std::string where =
      fmt::format("sample '{}' in '{}' at offset {}", id, location.shard, location.offset);
  try {
    return read_at(location, id);
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format(
        "{}: {}; if the file changed or moved since it was indexed, make the index again",
        where,
        error.what()));
  } catch (const SystemFailure& error) {
    throw SystemFailure(fmt::format("{}: {}", where, error.what()));
  }
}

}  // namespace entrain
