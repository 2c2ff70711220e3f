// The index: sizes of every sample of a data set, one CSV row each.
//
// Read first: read_index() and build_index().
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

struct Index {
  std::vector<SampleSizes> samples;
  std::string text_digest;  // of tokenizer and template, empty where lengths are estimates
  std::vector<std::string> extra_columns;              // unknown columns, kept
  std::vector<std::vector<std::string>> extra_values;  // [sample][extra column]
  std::filesystem::path path;                          // of the file; shards are relative to it
};

// Reads an index or a manifest, gzip accepted.
//
// Throws  InvalidInput naming file, line and column: a missing needed column, a negative number,
// text
//         where a number belongs, as many sizes as n_images says, a duplicate id.
Index read_index(const std::filesystem::path& path);
void write_index(const Index& index, const std::filesystem::path& path);

// Over all columns but shard, offset and bytes.
std::string digest(const Index& index);

enum class BadSampleRule : std::uint8_t { kRefuse, kLeaveOut, kTruncate };

struct IndexOptions {
  bool verify = false;             // decode every image
  std::optional<ModelSpec> model;  // needed for the length limit
  std::int64_t max_tokens = 0;  // longest LLM sequence; 0: the model's own, or no limit without one
  BadSampleRule too_long = BadSampleRule::kRefuse;  // kTruncate cuts the prompt
  BadSampleRule empty_response = BadSampleRule::kRefuse;
};

struct IndexSummary {
  std::int64_t rows = 0;
  std::int64_t left_out = 0;
  std::int64_t truncated = 0;
  std::map<std::string, std::int64_t> reasons;  // why rows were left out or truncated
};

struct IndexResult {
  Index index;
  IndexSummary summary;
};

// Reads WebDataset tar shards (members of a sample stand next to each other and share the name up
// to its first dot; `NAME.json` with question/answer, prompt/response or caption; NAME.png / .jpg /
// .jpeg, or NAME.0.png, NAME.1.png …), or merges index files. Shows progress on a terminal.
//
// Throws  InvalidInput naming shard, member and offset: a truncated or damaged tar, a damaged image
//         header, a duplicate id, a sample without text; with kRefuse also too long or empty
//         responses.
IndexResult build_index(const std::vector<std::filesystem::path>& data,
                        const std::filesystem::path& output,
                        const IndexOptions& options);

}  // namespace entrain
