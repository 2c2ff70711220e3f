#include "entrain/core/dataset/index.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/csv.h"
#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/index_columns.h"

namespace entrain {
namespace {

constexpr int kMaxSide = 1'000'000;            // pixels of an image or video side
constexpr std::int64_t kMaxCount = 1LL << 48;  // characters, tokens, bytes
constexpr double kMaxSeconds = 100 * 365.25 * 86'400;

constexpr auto kNeeded = {kSampleId, kNumImages, kImageSizes, kPromptChars, kResponseChars};

// That a file which is something else, such as JSON lines, is not taken for a damaged index.
void check_is_index(std::string_view content, const std::string& where) {
  const std::size_t begin = std::min(content.find_first_not_of("\r\n"), content.size());
  const std::string_view header = content.substr(begin, content.find('\n', begin) - begin);
  const auto named = [&](Column column) {
    return header.find(kColumnNames[column]) != std::string_view::npos;
  };
  if (!header.empty() && std::none_of(kNeeded.begin(), kNeeded.end(), named)) {
    std::vector<std::string> names;
    for (const Column column : kNeeded) {
      names.emplace_back(kColumnNames[column]);
    }
    throw InvalidInput(
        fmt::format("{}: no index (CSV): the first line has none of the columns {} (docs/data.md)",
                    where,
                    join(names)));
  }
}

// Reads the fields of the current row with checks.
class RowReader {
 public:
  RowReader(const CsvReader& csv, const std::string& where) : csv_(csv) {
    for (std::size_t i = 0; i < kNumColumns; ++i) {
      positions_[i] = csv.column(kColumnNames[i]);
    }
    const bool estimates = has(kPromptEstimate) || has(kResponseEstimate);
    const bool exact = has(kPromptTokens) || has(kResponseTokens);
    need(kNeeded, true);
    need({kPromptEstimate, kResponseEstimate}, estimates || !exact);
    need({kPromptTokens, kResponseTokens}, exact);
    need({kShard, kOffset, kBytes}, has(kShard) || has(kOffset) || has(kBytes));
    if (!missing_.empty()) {
      throw InvalidInput(
          fmt::format("{}:1: columns are missing: {}; given: {} (docs/data.md lists the columns)",
                      where,
                      join(missing_),
                      join(csv.columns())));
    }
  }

  [[nodiscard]] bool has(Column column) const { return positions_[column] >= 0; }

  // Empty when the column is absent.
  [[nodiscard]] std::string_view text(Column column) const {
    return has(column) ? std::string_view(csv_.field(positions_[column])) : std::string_view();
  }

  [[noreturn]] void fail(Column column, const std::string& message) const {
    csv_.fail(positions_[column], message);
  }

  template <class T>
  [[nodiscard]] T number(Column column, std::string_view given, T least, T most) const {
    T value{};
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
    const bool complete = error == std::errc() && end == given.data() + given.size();
    if (!complete && error != std::errc::result_out_of_range) {
      fail(column,
           fmt::format("'{}' is not a{}number", given, std::is_integral_v<T> ? " whole " : " "));
    }
    if (!complete || !(value >= least && value <= most)) {
      fail(column, fmt::format("{} is out of range; allowed: {} to {}", given, least, most));
    }
    return value;
  }

  [[nodiscard]] std::int64_t count(Column column) const {
    return number<std::int64_t>(column, text(column), 0, kMaxCount);
  }

  [[nodiscard]] ImageSize size(Column column, std::string_view given) const {
    const std::size_t cross = given.find('x');
    if (cross == std::string_view::npos) {
      fail(column, fmt::format("'{}' is not a size; written as WxH, e.g. 640x480", given));
    }
    return {number(column, given.substr(0, cross), 1, kMaxSide),
            number(column, given.substr(cross + 1), 1, kMaxSide)};
  }

  // A `;` list; empty, or as many entries as `expected`.
  [[nodiscard]] std::vector<std::string_view> list(Column column, std::size_t expected) const {
    std::vector<std::string_view> values = split(text(column), ';');
    if (!values.empty() && values.size() != expected) {
      fail(column, fmt::format("{} entries; video_seconds has {}", values.size(), expected));
    }
    return values;
  }

 private:
  void need(std::initializer_list<Column> columns, bool needed) {
    for (const Column column : columns) {
      if (needed && !has(column)) {
        missing_.emplace_back(kColumnNames[column]);
      }
    }
  }

  const CsvReader& csv_;
  std::array<int, kNumColumns> positions_{};
  std::vector<std::string> missing_;  // needed columns
};

void read_images(const RowReader& row, SampleSizes& sample) {
  const std::int64_t num_images = row.count(kNumImages);
  const std::vector<std::string_view> sizes = split(row.text(kImageSizes), ';');
  if (std::cmp_not_equal(sizes.size(), num_images)) {
    row.fail(kImageSizes, fmt::format("{} sizes; n_images says {}", sizes.size(), num_images));
  }
  sample.images.reserve(sizes.size());
  for (const std::string_view size : sizes) {
    sample.images.push_back(row.size(kImageSizes, size));
  }
}

double read_seconds(const RowReader& row, Column column, std::string_view given) {
  const auto seconds = row.number<double>(column, given, 0.0, kMaxSeconds);
  if (seconds == 0) {
    row.fail(column, "a length of 0 seconds; it must be greater");
  }
  return seconds;
}

void read_audio_and_video(const RowReader& row, SampleSizes& sample) {
  for (const std::string_view given : split(row.text(kAudioSeconds), ';')) {
    sample.audio_seconds.push_back(read_seconds(row, kAudioSeconds, given));
  }
  for (const std::string_view given : split(row.text(kVideoSeconds), ';')) {
    sample.videos.push_back({read_seconds(row, kVideoSeconds, given), std::nullopt, std::nullopt});
  }
  const auto frames = row.list(kVideoFrames, sample.videos.size());
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (!frames[i].empty()) {
      sample.videos[i].frames = row.number<std::int64_t>(kVideoFrames, frames[i], 1, kMaxCount);
    }
  }
  const auto sizes = row.list(kVideoSize, sample.videos.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!sizes[i].empty()) {
      sample.videos[i].size = row.size(kVideoSize, sizes[i]);
    }
  }
}

void check_sum(const RowReader& row, Column column, std::int64_t sum) {
  if (row.has(column) && !row.text(column).empty() && row.count(column) != sum) {
    row.fail(column, fmt::format("{}; prompt and response add up to {}", row.text(column), sum));
  }
}

void read_text_lengths(const RowReader& row, SampleSizes& sample) {
  sample.prompt_chars = row.count(kPromptChars);
  sample.response_chars = row.count(kResponseChars);
  check_sum(row, kTextChars, sample.prompt_chars + sample.response_chars);
  if (!row.text(kPromptTokens).empty() || !row.text(kResponseTokens).empty()) {
    sample.prompt_tokens = row.count(kPromptTokens);
    sample.response_tokens = row.count(kResponseTokens);
  }
  if (row.has(kPromptEstimate)) {
    sample.prompt_tokens_estimate = row.count(kPromptEstimate);
    sample.response_tokens_estimate = row.count(kResponseEstimate);
    check_sum(row, kTextEstimate, sample.prompt_tokens_estimate + sample.response_tokens_estimate);
  } else if (sample.prompt_tokens) {
    sample.prompt_tokens_estimate = *sample.prompt_tokens;
    sample.response_tokens_estimate = *sample.response_tokens;
  } else {
    row.fail(kPromptTokens, "empty, and there is no column of estimates");
  }
}

SampleSizes read_sample_row(const RowReader& row) {
  SampleSizes sample;
  sample.id = row.text(kSampleId);
  if (sample.id.empty()) {
    row.fail(kSampleId, "empty; every sample needs an id");
  }
  read_images(row, sample);
  read_audio_and_video(row, sample);
  read_text_lengths(row, sample);
  if (!row.text(kShard).empty()) {
    sample.location =
        SampleLocation{std::string(row.text(kShard)),
                       row.count(kOffset),
                       row.number<std::int64_t>(kBytes, row.text(kBytes), 1, kMaxCount),
                       std::string(row.text(kMedia)),
                       std::string(row.text(kColumnsOfFile))};
  } else if (!row.text(kOffset).empty() || !row.text(kBytes).empty()) {
    row.fail(kShard, "empty beside an offset or bytes");
  }
  return sample;
}

// All rows with exact lengths share one digest.
class DigestCheck {
 public:
  void add(const RowReader& row, const SampleSizes& sample) {
    const std::string_view given = row.text(kTextDigest);
    if (!sample.prompt_tokens && given.empty()) {
      return;
    }
    if (!sample.prompt_tokens) {
      row.fail(kTextDigest, "a digest beside lengths that are estimates");
    }
    if (!seen_) {
      digest_ = given;
      seen_ = true;
    } else if (digest_ != given) {
      row.fail(kTextDigest, fmt::format("'{}'; earlier rows say '{}'", given, digest_));
    }
  }
  [[nodiscard]] const std::string& digest() const { return digest_; }

 private:
  std::string digest_;
  bool seen_ = false;
};

}  // namespace

Index read_index(const std::filesystem::path& path) {
  return parse_index(read_file(path), path);
}

Index parse_index(std::string_view content, const std::filesystem::path& path) {
  check_is_index(content, path.string());
  CsvReader csv(content, path.string());
  const RowReader row(csv, path.string());
  Index index;
  index.path = path;
  std::vector<int> extra;
  for (std::size_t i = 0; i < csv.columns().size(); ++i) {
    if (std::find(kColumnNames.begin(), kColumnNames.end(), csv.columns()[i]) ==
        kColumnNames.end()) {
      extra.push_back(static_cast<int>(i));
      index.extra_columns.push_back(csv.columns()[i]);
    }
  }
  DigestCheck digests;
  std::unordered_map<std::string, std::int64_t> lines;
  while (csv.next()) {
    index.samples.push_back(read_sample_row(row));
    const SampleSizes& sample = index.samples.back();
    const auto [earlier, fresh] = lines.emplace(sample.id, csv.line());
    if (!fresh) {
      row.fail(kSampleId,
               fmt::format("'{}' stands already in line {}", sample.id, earlier->second));
    }
    digests.add(row, sample);
    if (!extra.empty()) {
      std::vector<std::string>& values = index.extra_values.emplace_back();
      for (const int column : extra) {
        values.push_back(csv.field(column));
      }
    }
  }
  index.text_digest = digests.digest();
  return index;
}

void load_tokens(Index& index) {
  if (is_token_digest(index.text_digest)) {
    index.tokens = std::make_shared<TokenCache>(token_cache_path(index.path), index.text_digest);
  }
}

SampleLocation located(const Index& index, const SampleLocation& location) {
  const auto reached = [&](const std::string& path) {
    return path.empty() ? path : (index.path.parent_path() / path).lexically_normal().string();
  };
  SampleLocation result = location;
  result.shard = reached(location.shard);
  result.media = reached(location.media);
  return result;
}

std::string shard_name(const std::filesystem::path& shard, const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  const fs::path whole = fs::weakly_canonical(fs::absolute(shard));
  const fs::path base = fs::weakly_canonical(fs::absolute(folder.empty() ? fs::path(".") : folder));
  const fs::path relative = whole.lexically_relative(base);
  return relative.empty() ? whole.string() : relative.string();
}

SampleLocation named_from(const SampleLocation& location, const std::filesystem::path& folder) {
  SampleLocation result = location;
  result.shard = shard_name(location.shard, folder);
  result.media = location.media.empty() ? "" : shard_name(location.media, folder);
  return result;
}

Percentiles percentiles(std::vector<std::int64_t> values) {
  Percentiles result;
  if (values.empty()) {
    return result;
  }
  std::sort(values.begin(), values.end());
  const auto at = [&](std::size_t percent) {
    return values[(values.size() * percent + 99) / 100 - 1];
  };
  result.count = static_cast<std::int64_t>(values.size());
  for (const std::int64_t value : values) {
    result.total += value;
  }
  result.p50 = at(50);
  result.p90 = at(90);
  result.p99 = at(99);
  result.max = values.back();
  return result;
}

}  // namespace entrain
