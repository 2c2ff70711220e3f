#include "entrain/core/dataset/index_builder.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/version.h"
#include "entrain/core/dataset/measure.h"
#include "entrain/core/dataset/records.h"
#include "entrain/core/dataset/sample_source.h"
#include "entrain/core/dataset/shard.h"
#include "entrain/core/dataset/table.h"
#include "entrain/core/spec/media.h"
#include "entrain/core/spec/workload.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEmptyResponse = "response is empty";
constexpr const char* kTooLong = "too long";
constexpr const char* kCannotBeCut = "too long, and no cut of its prompt makes it fit";
constexpr const char* kPromptCut = "prompt cut to fit";
constexpr const char* kDamagedFile = "a file that is damaged as a whole";

// Bytes; of a Parquet file's row group that slows training down.
constexpr std::int64_t kLargeRowGroup = 64LL << 20;

std::string named(const std::string& name, const std::string& id) {
  return name.empty() ? id : name + "/" + id;
}

}  // namespace

IndexBuilder::IndexBuilder(const fs::path& output, const IndexOptions& options)
    : options_(options), folder_(is_stream(output) ? fs::path() : output.parent_path()) {
  if (options.empty_response == BadSampleRule::kTruncate) {
    throw InvalidInput("empty responses cannot be truncated; refuse them or leave them out");
  }
  if (options.damaged == BadSampleRule::kTruncate) {
    throw InvalidInput("damaged samples cannot be truncated; refuse them or leave them out");
  }
  if (!options.ignore_modality.empty() && !options.model) {
    throw InvalidInput("ignored media need a model, which says what it has encoders for");
  }
  if (options.max_tokens < 0 || (options.max_tokens > 0 && !options.model)) {
    throw InvalidInput(fmt::format(
        "a limit of {} tokens; it must be positive and needs a model, which says how many "
        "tokens an image has",
        options.max_tokens));
  }
  limit_ = options.max_tokens > 0 ? options.max_tokens
           : options.model        ? options.model->llm.max_tokens
                                  : 0;
  result_.index.path = output;
  if (options.tokenizer) {
    start_tokenizer(output);
  }
}

MeasuredFiles::Options IndexBuilder::measuring() const {
  MeasuredFiles::Options result;
  result.media = options_.media;
  result.verify = options_.verify;
  result.bytes = !workers_;
  result.keep_json = workers_ || options_.too_long == BadSampleRule::kTruncate;
  result.threads = options_.threads;
  return result;
}

std::string IndexBuilder::settings() const {
  const bool json = options_.too_long == BadSampleRule::kTruncate;
  return fmt::format("entrain {}; media '{}'; verify {}; texts {}; {}",
                     version(),
                     options_.media.string(),
                     options_.verify,
                     json,
                     workers_ ? workers_->facts().text() : text_digest());
}

void IndexBuilder::begin_file(const FileToMeasure& file,
                              const std::string& name,
                              const MeasuredFile& measured,
                              std::shared_ptr<PartialFileWriter> kept) {
  const fs::path& path = file.path;
  if (!workers_) {
    use_text_digest(text_digest(), path);
  }
  name_ = name;
  kept_ = std::move(kept);
  if (!measured.damage.empty()) {
    damaged(path.string(), kDamagedFile, measured.damage);
    return;
  }
  for (const auto& [reason, count] : measured.skipped) {
    result_.summary.ignored_members[reason] += count;
  }
  for (const std::string& note : measured.notes) {
    ++notes_[note];
  }
  compressed_ += is_compressed_shard(path) ? 1 : 0;
  if (measured.bytes_of_a_row > kLargeRowGroup) {
    result_.summary.notes.push_back(fmt::format(
        "'{}' has row groups of up to {}, and training reads a whole one for a sample: write the "
        "file with smaller ones (pyarrow.parquet.write_table(…, row_group_size=100))",
        path.string(),
        format_bytes(measured.bytes_of_a_row)));
  }
  const fs::path media = options_.media.empty() ? path.parent_path() / "." : options_.media;
  const bool names_media = is_record_file(path) || is_table_file(path);
  location_ = {};
  location_.shard = shard_name(path, folder_);
  location_.media = names_media ? shard_name(media, folder_) : "";
  location_.columns = file.columns.text();
}

void IndexBuilder::end_file() {
  if (kept_) {
    in_order(std::nullopt, [kept = kept_](TokenResult&) { kept->finish(); });
  }
  kept_ = nullptr;
}

void IndexBuilder::add_index(const fs::path& path,
                             const std::string& name,
                             ReadProgress& progress) {
  Index index = read_index(path);
  if (workers_ && is_token_digest(index.text_digest)) {
    load_tokens(index);
    if (!(index.tokens->facts() == workers_->facts())) {
      index.tokens = nullptr;  // made anew
    }
  }
  if (!workers_ && is_token_digest(index.text_digest)) {
    throw InvalidInput(fmt::format(
        "'{}' was made with a tokenizer; its tokens have to be made again: give --tokenizer",
        path.string()));
  }
  if (!workers_ && !index.text_digest.empty()) {
    use_text_digest(index.text_digest, path);
  }
  const std::vector<std::size_t> columns = take_columns(index.extra_columns);
  for (std::size_t i = 0; i < index.samples.size(); ++i) {
    SampleSizes sample = index.samples[i];
    sample.id = named(name, sample.id);
    Extra extra(result_.index.extra_columns.size());
    for (std::size_t column = 0; column < columns.size(); ++column) {
      extra[columns[column]] = index.extra_values[i][column];
    }
    add_row(path, index, index.samples[i].id, std::move(sample), std::move(extra));
    progress.reach(static_cast<std::int64_t>(i) + 1, std::ssize(index.samples));
  }
}

IndexResult IndexBuilder::finish(const std::vector<fs::path>& files) {
  if (workers_) {
    workers_->flush();
  }
  refusals_.stop_if_any();
  Index& index = result_.index;
  if (index.samples.empty()) {
    throw InvalidInput(nothing_stays(files));
  }
  if (options_.model) {
    for (std::string& note : check_media(
             *options_.model, index.samples, options_.ignore_modality, "data", kIgnoreOption)) {
      result_.summary.notes.push_back(std::move(note));
    }
  }
  if (options_.model) {
    note_videos(*options_.model, index.samples, result_.summary);
  }
  for (const auto& [note, count] : notes_) {
    result_.summary.notes.push_back(count == 1 ? note
                                               : fmt::format("{} (of {} files)", note, count));
  }
  if (compressed_ > 0) {
    result_.summary.notes.push_back(
        fmt::format("{}, compressed: such samples can be studied, not trained; unpack "
                    "and make the index again",
                    counted(compressed_, "shard")));
  }
  if (!index.extra_columns.empty()) {
    for (std::vector<std::string>& values : index.extra_values) {
      values.resize(index.extra_columns.size());
    }
  }
  summarise(index.samples, std::move(llm_tokens_), result_.summary);
  return std::move(result_);
}

// A text digest is a property of the whole index.
void IndexBuilder::use_text_digest(const std::string& digest, const fs::path& path) {
  std::string& ours = result_.index.text_digest;
  if (!ours.empty() && ours != digest) {
    throw InvalidInput(
        fmt::format("'{}' has lengths by another tokenizer or template (digest {}) than the data "
                    "before it ({})",
                    path.string(),
                    digest,
                    ours));
  }
  ours = digest;
}

// Positions of an index's extra columns among ours; new ones are appended.
std::vector<std::size_t> IndexBuilder::take_columns(const std::vector<std::string>& names) {
  std::vector<std::string>& ours = result_.index.extra_columns;
  std::vector<std::size_t> positions;
  for (const std::string& name : names) {
    const auto found = std::find(ours.begin(), ours.end(), name);
    positions.push_back(static_cast<std::size_t>(found - ours.begin()));
    if (found == ours.end()) {
      ours.push_back(name);
    }
  }
  return positions;
}

void IndexBuilder::check_new(const std::string& id, const std::string& where) {
  const auto [earlier, fresh] = seen_.emplace(id, where);
  if (!fresh) {
    throw InvalidInput(fmt::format(
        "sample id '{}' stands twice: {} and {}; names keep data sets apart: a=PATH b=PATH",
        id,
        earlier->second,
        where));
  }
}

// Why there is nothing to write; what was left out may say it.
std::string IndexBuilder::nothing_stays(const std::vector<fs::path>& files) const {
  const std::vector<LeftOut>& left_out = result_.summary.left_out;
  return left_out.empty()
             ? fmt::format(
                   "the data hold no samples: '{}'{}",
                   files.front().string(),
                   files.size() > 1 ? fmt::format(" and {} more files", files.size() - 1) : "")
             : fmt::format(
                   "the data hold no samples that may stay; left out are {}, the first '{}': {}",
                   left_out.size(),
                   left_out.front().id,
                   left_out.front().reason);
}

template <class Read>
bool IndexBuilder::unless_damaged(const std::string& id, const char* kind, const Read& read) {
  try {
    read();
    return true;
  } catch (const InvalidInput& error) {
    damaged(id, kind, error.what());
    return false;
  }
}

void IndexBuilder::damaged(const std::string& id, const char* kind, const std::string& reason) {
  in_order(std::nullopt,
           [this, id, kind, reason](TokenResult&) { leave_out_damaged(id, kind, reason); });
}

void IndexBuilder::leave_out_damaged(const std::string& id,
                                     const char* kind,
                                     const std::string& reason) {
  if (options_.damaged == BadSampleRule::kRefuse) {
    const std::string quoted = fmt::format("'{}'", id);
    const bool named =
        std::string_view(kind) != kDamagedSample || reason.find(quoted) != std::string::npos;
    throw InvalidInput(fmt::format("{}{} (--damaged leave-out goes on without such samples)",
                                   named ? "" : fmt::format("sample {}: ", quoted),
                                   reason));
  }
  result_.summary.left_out.push_back({id, reason});
  ++result_.summary.reasons[fmt::format("left out: {}", kind)];
}

void IndexBuilder::add_sample(MeasuredSample measured, std::optional<TokenResult> tokens) {
  std::string kept = kept_ ? to_bytes(measured, /*json=*/!workers_) : "";
  SampleSizes& sample = measured.sizes;
  sample.id = named(name_, sample.id);
  if (!measured.damage.empty()) {
    in_order(std::nullopt, [writer = kept_, kept](TokenResult&) {
      if (writer) {
        writer->add(kept, nullptr);
      }
    });
    damaged(sample.id, kDamagedSample, measured.damage);
    return;
  }
  check_new(sample.id, measured.where);
  for (const std::string& extension : measured.ignored) {
    ++result_.summary.ignored_members[extension];
  }
  result_.summary.scattered += measured.scattered ? 1 : 0;
  sample.location->shard = location_.shard;
  sample.location->media = location_.media;
  sample.location->columns = location_.columns;
  if (!workers_) {
    if (kept_) {
      kept_->add(kept, nullptr);
    }
    const auto text = [&]() -> std::optional<SampleText> {
      return sample_text(measured.json, measured.where);
    };
    add(std::move(sample), text, {});
    return;
  }
  if (tokens) {
    in_order(std::nullopt, [this, sample, tokens = std::move(*tokens)](TokenResult&) {
      take_tokens(sample, tokens, {});
    });
    return;
  }
  tokenize_and_add(std::move(sample),
                   std::move(measured.json),
                   std::move(measured.where),
                   {},
                   kept_ ? std::move(kept) : "");
}

// A sample that `index`, read from `path`, has already measured; there it is called `own_id`.
void IndexBuilder::add_row(const fs::path& path,
                           const Index& index,
                           const std::string& own_id,
                           SampleSizes sample,
                           Extra extra) {
  check_new(sample.id, path.string());
  const SampleLocation location =
      sample.location ? located(index, *sample.location) : SampleLocation();
  if (sample.location) {
    sample.location = named_from(location, folder_);
  }
  const auto check = [&] {
    if (options_.verify && sample.location) {
      verify_sample(sample, read_sample(location, sample.id), location.shard);
    }
  };
  if (!unless_damaged(sample.id, kDamagedSample, check)) {
    return;
  }
  const std::string id = sample.id;
  const std::string where = fmt::format("sample '{}' in '{}'", id, location.shard);
  if (workers_ && index.tokens) {
    TokenResult result;
    result.tokens = index.tokens->sample(own_id);
    result.prompt_chars = sample.prompt_chars;
    result.response_chars = sample.response_chars;
    in_order(std::nullopt,
             [this, sample = std::move(sample), result = std::move(result), extra](TokenResult&) {
               take_tokens(sample, result, extra);
             });
    return;
  }
  if (workers_) {
    if (location.shard.empty()) {
      throw InvalidInput(fmt::format(
          "'{}': sample '{}' has no shard, whose text could be tokenized", path.string(), id));
    }
    std::string json;
    const auto read = [&] {
      json = read_sample(location, id).text;
      parse_json(json, where);
    };
    if (unless_damaged(id, kDamagedSample, read)) {
      tokenize_and_add(std::move(sample), std::move(json), where, std::move(extra), "");
    }
    return;
  }
  const auto text = [&]() -> std::optional<SampleText> {
    if (location.shard.empty() || index.text_digest != text_digest()) {
      return std::nullopt;
    }
    return sample_text(read_sample(location, id).text, where);
  };
  add(std::move(sample), text, std::move(extra));
}

// `text` gives the sample's text, or nothing where only sizes are known. False if it is left out.
bool IndexBuilder::add(SampleSizes sample,
                       const std::function<std::optional<SampleText>()>& text,
                       Extra extra) {
  if (sample.response_chars == 0) {
    reject(sample.id, kEmptyResponse, options_.empty_response);
    return false;
  }
  std::int64_t llm_tokens = 0;
  if (options_.model) {
    try {
      llm_tokens = sample_work(*options_.model, sample).llm_tokens;
    } catch (const InvalidInput& error) {
      leave_out_damaged(sample.id, kRefusedSize, error.what());
      return false;
    }
  }
  if (limit_ > 0 && llm_tokens > limit_) {
    if (options_.too_long != BadSampleRule::kTruncate) {
      reject(sample.id, fmt::format("{} (limit {} tokens)", kTooLong, limit_), options_.too_long);
      return false;
    }
    if (!truncate(sample, llm_tokens - limit_, text())) {
      reject(sample.id, kCannotBeCut, BadSampleRule::kLeaveOut);
      return false;
    }
    llm_tokens = sample_work(*options_.model, sample).llm_tokens;
  }
  if (options_.model) {
    llm_tokens_.push_back(llm_tokens);
  }
  result_.index.samples.push_back(std::move(sample));
  result_.index.extra_values.push_back(std::move(extra));
  return true;
}

// Takes `excess` tokens from the prompt; false when it is shorter than that.
bool IndexBuilder::truncate(SampleSizes& sample,
                            std::int64_t excess,
                            const std::optional<SampleText>& text) {
  if (text) {
    const int num_media = sample.num_media();
    const std::int64_t held = sample.prompt_tokens.value_or(prompt_tokens(*text, num_media));
    const std::optional<SampleText> fitted = fit_prompt(*text, num_media, held - excess);
    if (!fitted) {
      return false;
    }
    set_text_lengths(*fitted, sample);
  } else if (sample.prompt_tokens || sample.prompt_tokens_estimate < excess) {
    // Exact lengths cannot be cut without the text: the cut must fall between characters.
    return false;
  } else {
    sample.prompt_tokens_estimate -= excess;
  }
  ++result_.summary.truncated;
  ++result_.summary.reasons[kPromptCut];
  return true;
}

void IndexBuilder::reject(const std::string& id, const std::string& reason, BadSampleRule rule) {
  if (rule == BadSampleRule::kRefuse) {
    refusals_.ids[reason].push_back(id);
    return;
  }
  result_.summary.left_out.push_back({id, reason});
  ++result_.summary.reasons["left out: " + reason];
}

}  // namespace entrain
