#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "entrain/core/base/csv.h"
#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/dataset/index_columns.h"

namespace entrain {
namespace {

template <class Values, class Format>
std::string list_field(const Values& values, const Format& format) {
  std::string field;
  bool any = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string entry = format(values[i]);
    field += (i == 0 ? "" : ";") + entry;
    any = any || !entry.empty();
  }
  return any ? field : std::string();
}

std::string size_field(const ImageSize& size) {
  return fmt::format("{}x{}", size.width, size.height);
}

// Fields of columns [kSampleId, kTextDigest].
void append_size_fields(const SampleSizes& sample,
                        const std::string& text_digest,
                        bool exact,
                        std::vector<std::string>& fields) {
  fields.push_back(sample.id);
  fields.push_back(fmt::format("{}", sample.images.size()));
  fields.push_back(list_field(sample.images, size_field));
  fields.push_back(
      list_field(sample.audio_seconds, [](double seconds) { return fmt::format("{}", seconds); }));
  fields.push_back(list_field(
      sample.videos, [](const VideoSize& video) { return fmt::format("{}", video.seconds); }));
  fields.push_back(list_field(sample.videos, [](const VideoSize& video) {
    return video.frames ? fmt::format("{}", *video.frames) : std::string();
  }));
  fields.push_back(list_field(sample.videos, [](const VideoSize& video) {
    return video.size ? size_field(*video.size) : std::string();
  }));
  for (const auto& [prompt, response] :
       {std::pair(sample.prompt_chars, sample.response_chars),
        std::pair(sample.prompt_tokens_estimate, sample.response_tokens_estimate)}) {
    fields.push_back(fmt::format("{}", prompt));
    fields.push_back(fmt::format("{}", response));
    fields.push_back(fmt::format("{}", prompt + response));
  }
  if (exact) {
    const bool known = sample.prompt_tokens && sample.response_tokens;
    fields.push_back(known ? fmt::format("{}", *sample.prompt_tokens) : "");
    fields.push_back(known ? fmt::format("{}", *sample.response_tokens) : "");
    fields.push_back(known ? text_digest : "");
  }
}

std::string format_rows(const Index& index, bool locations) {
  const auto any = [&](auto member) {
    return std::any_of(index.samples.begin(), index.samples.end(), [&](const SampleSizes& sample) {
      return (sample.*member).has_value();
    });
  };
  const bool exact = any(&SampleSizes::prompt_tokens);
  locations = locations && any(&SampleSizes::location);
  const auto any_has = [&](std::string SampleLocation::*part) {
    return locations &&
           std::any_of(index.samples.begin(), index.samples.end(), [&](const SampleSizes& sample) {
             return sample.location && !((*sample.location).*part).empty();
           });
  };
  const bool media = any_has(&SampleLocation::media);
  const bool columns = any_has(&SampleLocation::columns);
  std::vector<std::string> fields;
  for (std::size_t i = 0; i < kNumColumns; ++i) {
    if ((i < kPromptTokens) || (i < kShard && exact) || (i >= kShard && i < kMedia && locations) ||
        (i == kMedia && media) || (i == kColumnsOfFile && columns)) {
      fields.emplace_back(kColumnNames[i]);
    }
  }
  fields.insert(fields.end(), index.extra_columns.begin(), index.extra_columns.end());
  std::string out;
  append_csv_row(out, fields);
  for (std::size_t i = 0; i < index.samples.size(); ++i) {
    const SampleSizes& sample = index.samples[i];
    fields.clear();
    append_size_fields(sample, index.text_digest, exact, fields);
    if (locations) {
      const bool known = sample.location.has_value();
      fields.push_back(known ? sample.location->shard : "");
      fields.push_back(known ? fmt::format("{}", sample.location->offset) : "");
      fields.push_back(known ? fmt::format("{}", sample.location->bytes) : "");
      if (media) {
        fields.push_back(known ? sample.location->media : "");
      }
      if (columns) {
        fields.push_back(known ? sample.location->columns : "");
      }
    }
    if (!index.extra_columns.empty()) {
      fields.insert(fields.end(), index.extra_values[i].begin(), index.extra_values[i].end());
    }
    append_csv_row(out, fields);
  }
  return out;
}

}  // namespace

void write_index(const Index& index, const std::filesystem::path& path) {
  write_file(path, format_rows(index, true));
}

void copy_index(const std::filesystem::path& source, const std::filesystem::path& target) {
  Index index = read_index(source);
  for (SampleSizes& sample : index.samples) {
    if (sample.location) {
      sample.location = named_from(located(index, *sample.location), target.parent_path());
    }
  }
  load_tokens(index);
  if (index.tokens) {
    write_file(token_cache_path(target), [&](std::ostream& out) {
      out << std::ifstream(token_cache_path(source), std::ios::binary).rdbuf();
    });
  }
  write_index(index, target);
}

std::string digest(const Index& index) {
  return digest_of(format_rows(index, false));
}

}  // namespace entrain
