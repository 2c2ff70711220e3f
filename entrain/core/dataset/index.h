// The index: sizes of every sample of a data set, one CSV row each.
//
// Read first: read_index() and build_index(). Columns, in any order:
//   sample_id, n_images, image_sizes (`WxH;WxH`), prompt_chars, response_chars   needed
//   prompt_tokens_estimate + response_tokens_estimate, or prompt_tokens + response_tokens   needed
//   audio_seconds, video_seconds, video_frames, video_size (lists with `;`)   if there are any
//   text_chars, text_tokens_estimate   sums, checked
//   shard, offset, bytes   position of the sample; shard is relative to the index's folder
//   media_folder   of the files that a record names, likewise; if there are records
//   data_columns   what its parts are called in that file (columns.h); if they are called otherwise
//   text_digest   tokenizer and template of prompt_tokens, the same in every row that has it
// Other columns are kept unchanged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/dataset/columns.h"
#include "entrain/core/dataset/token_workers.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

struct Index {
  std::vector<SampleSizes> samples;
  std::string text_digest;  // of tokenizer and template, empty if lengths are estimates
  std::vector<std::string> extra_columns;              // unknown columns, kept
  std::vector<std::vector<std::string>> extra_values;  // [sample][extra column]
  std::filesystem::path path;                          // of the file; shards are relative to it
  // Of the file beside it, where a tokenizer made the lengths; load_tokens() maps it.
  std::shared_ptr<const TokenCache> tokens;
};

// Reads an index or a manifest, gzip accepted.
//
// Throws  InvalidInput naming file, line and column: all needed columns that are missing, a
// negative
//         number, text where a number belongs, not as many sizes as n_images says, a sum that is
//         none, a duplicate id, two text digests; or a path that does not exist.
// Cost    about 0.1 s for 50,000 rows.
Index read_index(const std::filesystem::path& path);
// The same from text, as if it were the file at `path`.
Index parse_index(std::string_view content, const std::filesystem::path& path);

// Maps the token cache of an index that was made with a tokenizer; does nothing to another one.
//
// Throws  InvalidInput as TokenCache does.
void load_tokens(Index& index);

// Writes all columns; those of positions and exact lengths only if a sample has them.
//
// Throws  SystemFailure when `path` cannot be written; no partial file is left.
void write_index(const Index& index, const std::filesystem::path& path);

// Writes the index at `source` to `target`, which is another file: shards relative to the new
// folder, the token cache beside it.
//
// Throws  as read_index(), TokenCache and write_index() do.
void copy_index(const std::filesystem::path& source, const std::filesystem::path& target);

// Digest of all columns except those of the place: shard, offset, bytes, media_folder,
// data_columns.
std::string digest(const Index& index);

// The location with paths that are relative to the working directory, as read_sample() takes them.
SampleLocation located(const Index& index, const SampleLocation& location);

// The file or folder at that path, as an index in `folder` names it; of a location, both paths.
std::string shard_name(const std::filesystem::path& shard, const std::filesystem::path& folder);
SampleLocation named_from(const SampleLocation& location, const std::filesystem::path& folder);

enum class BadSampleRule : std::uint8_t { kRefuse, kLeaveOut, kTruncate };

struct IndexOptions {
  std::string split = "train";  // of folders that Energon prepared
  int threads = 1;              // that read and measure files, each one at a time, >= 1
  // Folder of the media that records of JSON files name by path; empty: each file's own.
  std::filesystem::path media;
  ColumnMap columns;    // of all data that are no indices
  bool verify = false;  // decode every image and clip
  // Sizes of images of folders that Energon prepared are those of its media metadata, and the
  // images are not opened; not with `verify`.
  bool trust_metadata = false;
  // What happens to unreadable samples and to truncated shards; kTruncate is
  // not allowed here.
  BadSampleRule damaged = BadSampleRule::kRefuse;
  std::vector<std::string> ignore_modality;  // kMediaNames that the model may lack an encoder for
  std::optional<ModelSpec> model;            // needed for the length limit
  std::int64_t max_tokens = 0;  // longest LLM sequence; 0: the model's own, or no limit without one
  BadSampleRule too_long = BadSampleRule::kRefuse;  // kTruncate cuts the prompt from its front
  BadSampleRule empty_response = BadSampleRule::kRefuse;  // kTruncate is not allowed here
  // Absent: bytes (text.h). Needs a model, and `too_long` not to be kTruncate.
  std::optional<TokenizerOptions> tokenizer;
};

// By rank: the smallest value that this percentage of the values do not exceed.
struct Percentiles {
  std::int64_t count = 0;
  std::int64_t total = 0;
  std::int64_t p50 = 0;
  std::int64_t p90 = 0;
  std::int64_t p99 = 0;
  std::int64_t max = 0;
};
// All zero for no values.
Percentiles percentiles(std::vector<std::int64_t> values);

struct LeftOut {
  std::string id;  // of the sample, or the path of a shard that is skipped as a whole
  std::string reason;
};

struct IndexSummary {
  std::int64_t rows = 0;
  std::vector<LeftOut> left_out;
  std::int64_t truncated = 0;
  std::map<std::string, std::int64_t> reasons;  // why rows were skipped or truncated
  // Members that are no text, image or clip, by extension; members without a sample by reason.
  std::map<std::string, std::int64_t> ignored_members;
  std::int64_t scattered = 0;      // samples with other samples' members in between
  std::vector<std::string> notes;  // ignored media, shards that cannot be used for training
  Percentiles text_tokens;         // per sample: prompt and response, exact where known
  Percentiles images;              // per sample
  Percentiles pixels;              // per image
  Percentiles audio_milliseconds;  // per clip
  std::int64_t videos = 0;
  std::int64_t text_only = 0;             // samples without image, clip and video
  std::optional<Percentiles> llm_tokens;  // per sample; with a model
};

// A summary of a few lines.
std::string to_string(const IndexSummary& summary);

struct IndexResult {
  Index index;
  IndexSummary summary;
};

// Makes an index of shards and index files (list_data() says which), and writes it to `output`.
// Shows progress.
//
// Shards    see shard.h. Ids are `SPLIT/NAME`, SPLIT the shard's file name without its number
//           (`train-000003.tar` → `train`). Of every image and clip its header is read and, without
//           decoding it, whether it is there to its end.
// Too long  samples whose LLM sequence exceeds the limit. kTruncate lowers prompt_tokens (and
//           prompt_chars) to what fits; training repeats the cut from prompt_tokens. Samples
//           that do not fit even without prompt are skipped.
// Tokens    with a tokenizer, ids are made and written to token_cache_path(output); indices among
// the
//           data are tokenized anew.
// Throws    InvalidInput naming shard, member and offset: a duplicate id; under damaged = kRefuse a
//           truncated or damaged tar, image or clip (with `verify` any damage), a sample without
//           text, video; with kRefuse the count and first ids of too long or empty samples; media
//           that the model has no encoder for (check_media()).
IndexResult build_index(const std::vector<std::filesystem::path>& data,
                        const std::filesystem::path& output,
                        const IndexOptions& options);

}  // namespace entrain
