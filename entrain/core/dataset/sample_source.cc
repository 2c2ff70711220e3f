#include "entrain/core/dataset/sample_source.h"

#include <optional>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/records.h"
#include "entrain/core/dataset/shard.h"
#include "entrain/core/dataset/table.h"

namespace entrain {
namespace {

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
  return content_of(sample_at(location), id);
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
  return std::make_unique<ShardReader>(file, columns, image_sizes);
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
