#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/audio.h"
#include "entrain/core/dataset/image.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/dataset/index_reports.h"
#include "entrain/core/dataset/measured_files.h"
#include "entrain/core/dataset/records.h"
#include "entrain/core/dataset/sample_source.h"
#include "entrain/core/dataset/shard.h"
#include "entrain/core/dataset/shard_list.h"
#include "entrain/core/dataset/table.h"
#include "entrain/core/dataset/text.h"
#include "entrain/core/spec/media.h"
#include "entrain/core/spec/video.h"
#include "entrain/core/spec/workload.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEmptyResponse = "response is empty";
constexpr const char* kTooLong = "too long";
constexpr const char* kCannotBeCut = "too long, and no cut of its prompt makes it fit";
constexpr const char* kPromptCut = "prompt cut to fit";
constexpr const char* kDamaged = "cannot be read";
constexpr const char* kNotTaken = "of a size that the model refuses";
constexpr const char* kDamagedFile = "a file that is damaged as a whole";

// Bytes; of a Parquet file's row group that slows training down.
constexpr std::int64_t kLargeRowGroup = 64LL << 20;

class IndexBuilder {
 public:
  IndexBuilder(const fs::path& output, const IndexOptions& options)
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

  // The next file of `files`, which is at `path`.
  void add_file(const fs::path& path,
                const std::string& name,
                MeasuredFiles& files,
                ReadProgress& progress) {
    if (!workers_) {
      use_text_digest(text_digest(), path);
    }
    const MeasuredFile file = files.next_file();
    if (!file.damage.empty()) {
      damaged(path.string(), kDamagedFile, file.damage);
      progress.reach(1, 1);
      return;
    }
    for (const auto& [reason, count] : file.skipped) {
      result_.summary.ignored_members[reason] += count;
    }
    compressed_ += is_compressed_shard(path) ? 1 : 0;
    if (file.bytes_of_a_row > kLargeRowGroup) {
      result_.summary.notes.push_back(fmt::format(
          "'{}' has row groups of up to {}, and training reads a whole one for a sample: write the "
          "file with smaller ones (pyarrow.parquet.write_table(…, row_group_size=100))",
          path.string(),
          format_bytes(file.bytes_of_a_row)));
    }
    const fs::path media = options_.media.empty() ? path.parent_path() / "." : options_.media;
    const bool names_media = is_record_file(path) || is_table_file(path);
    SampleLocation location;
    location.shard = shard_name(path, folder_);
    location.media = names_media ? shard_name(media, folder_) : "";
    for (std::int64_t i = 0; i < file.num_samples; ++i) {
      MeasuredSample sample = files.next_sample();
      sample.sizes.id = named(name, sample.sizes.id);
      add_sample(location, std::move(sample));
      progress.reach(i + 1, file.num_samples);
    }
  }

  // What measures the files that are no indices.
  [[nodiscard]] MeasuredFiles::Options measuring() const {
    MeasuredFiles::Options result;
    result.media = options_.media;
    result.verify = options_.verify;
    result.bytes = !workers_;
    result.keep_json = workers_ || options_.too_long == BadSampleRule::kTruncate;
    result.threads = options_.threads;
    return result;
  }

  void add_index(const fs::path& path, const std::string& name, ReadProgress& progress) {
    Index index = read_index(path);
    for (SampleSizes& sample : index.samples) {
      sample.id = named(name, sample.id);
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
      std::vector<std::string> extra(result_.index.extra_columns.size());
      for (std::size_t column = 0; column < columns.size(); ++column) {
        extra[columns[column]] = index.extra_values[i][column];
      }
      add_row(path, index, index.samples[i], std::move(extra));
      progress.reach(static_cast<std::int64_t>(i) + 1, std::ssize(index.samples));
    }
  }

  // `files`: all that were added.
  IndexResult finish(const std::vector<fs::path>& files) {
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
    note_videos();
    if (compressed_ > 0) {
      result_.summary.notes.push_back(
          fmt::format("{} shards are compressed: their samples can be studied, not trained; unpack "
                      "them and make the index again",
                      compressed_));
    }
    if (!index.extra_columns.empty()) {
      for (std::vector<std::string>& values : index.extra_values) {
        values.resize(index.extra_columns.size());
      }
    }
    summarise();
    return std::move(result_);
  }

  void note_videos() {
    const std::vector<SampleSizes>& samples = result_.index.samples;
    const bool videos = std::any_of(samples.begin(), samples.end(), [](const SampleSizes& sample) {
      return !sample.videos.empty();
    });
    for (const EncoderSpec& encoder :
         options_.model ? options_.model->encoders : std::vector<EncoderSpec>()) {
      if (videos && encoder.modality == Modality::kVision && !reads_videos(encoder)) {
        result_.summary.notes.push_back(fmt::format(
            "the videos can be studied, not trained: encoder '{}' has sampling \"rate\", which "
            "knows "
            "only lengths ([vision.video] sampling = \"stride\" or \"spread\", docs/models.md)",
            encoder.name));
      }
    }
  }

  // Before the index, which names its digest.
  void write_tokens(const fs::path& output, Index& index) {
    if (workers_) {
      index.text_digest =
          tokens_.write(token_cache_path(output), workers_->facts(), workers_->table());
    }
  }

 private:
  void start_tokenizer(const fs::path& output) {
    const TokenizerOptions& tokenizer = *options_.tokenizer;
    if (!options_.model) {
      throw InvalidInput(
          "a tokenizer needs a model, which says how many tiles an image has and which ids there "
          "are");
    }
    if (options_.too_long == BadSampleRule::kTruncate) {
      throw InvalidInput(
          "--too-long truncate cuts texts of bytes alone; with a tokenizer refuse or leave out");
    }
    if (is_stream(output)) {
      throw InvalidInput(fmt::format(
          "'{}' is a stream; tokens are written to a file beside the index", output.string()));
    }
    workers_.emplace(tokenizer);
    check_tokenizer(workers_->facts(), tokenizer, options_.model->llm.vocab_size);
  }

  // Calls `take` when the samples before it have been taken, with the request's tokens.
  void in_order(std::optional<TokenRequest> request, std::function<void(TokenResult&)> take) {
    if (workers_) {
      workers_->push(std::move(request), std::move(take));
    } else {
      TokenResult nothing;
      take(nothing);
    }
  }

  // A text digest is a property of the whole index.
  void use_text_digest(const std::string& digest, const fs::path& path) {
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

  static std::string named(const std::string& name, const std::string& id) {
    return name.empty() ? id : name + "/" + id;
  }

  // Positions of an index's extra columns among ours; new ones are appended.
  std::vector<std::size_t> take_columns(const std::vector<std::string>& names) {
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

  void check_new(const std::string& id, const std::string& where) {
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
  [[nodiscard]] std::string nothing_stays(const std::vector<fs::path>& files) const {
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

  // Runs `read`; false when what it reads is damaged and is therefore left out, by its `id`.
  template <class Read>
  bool unless_damaged(const std::string& id, const char* kind, const Read& read) {
    try {
      read();
      return true;
    } catch (const InvalidInput& error) {
      damaged(id, kind, error.what());
      return false;
    }
  }

  void damaged(const std::string& id, const char* kind, const std::string& reason) {
    in_order(std::nullopt,
             [this, id, kind, reason](TokenResult&) { leave_out_damaged(id, kind, reason); });
  }

  void leave_out_damaged(const std::string& id, const char* kind, const std::string& reason) {
    if (options_.damaged == BadSampleRule::kRefuse) {
      throw InvalidInput(
          fmt::format("{} (--damaged leave-out goes on without such samples)", reason));
    }
    result_.summary.left_out.push_back({id, reason});
    ++result_.summary.reasons[fmt::format("left out: {}", kind)];
  }

  // A sample of the file at `location`.
  void add_sample(const SampleLocation& location, MeasuredSample measured) {
    SampleSizes& sample = measured.sizes;
    if (!measured.damage.empty()) {
      damaged(sample.id, kDamaged, measured.damage);
      return;
    }
    check_new(sample.id, measured.where);
    for (const std::string& extension : measured.ignored) {
      ++result_.summary.ignored_members[extension];
    }
    result_.summary.scattered += measured.scattered ? 1 : 0;
    sample.location->shard = location.shard;
    sample.location->media = location.media;
    if (workers_) {
      tokenize_and_add(std::move(sample), std::move(measured.json), std::move(measured.where), {});
    } else {
      const auto text = [&] { return sample_text(measured.json, measured.where); };
      add(std::move(sample), text, {});
    }
  }

  // Whether it is known how the tokenizer writes the sample's media that have an encoder.
  void check_written(const SampleSizes& sample) const {
    for (const EncoderSpec& encoder : options_.model->encoders) {
      const bool vision = encoder.modality == Modality::kVision;
      const bool has =
          vision ? !sample.images.empty() || !sample.videos.empty() : !sample.audio_seconds.empty();
      if (has && !(vision ? options_.tokenizer->image_text : options_.tokenizer->audio_text)) {
        throw InvalidInput(
            fmt::format("sample '{}' has media for encoder '{}', and nothing says how the "
                        "tokenizer '{}' writes "
                        "them: the model's Hugging Face folder does, as --model or as --tokenizer; "
                        "with a model "
                        "file texts are bytes (--tokenizer bytes)",
                        sample.id,
                        encoder.name,
                        options_.tokenizer->folder.string()));
      }
    }
  }

  // `where` names the text.
  void tokenize_and_add(SampleSizes sample,
                        std::string json,
                        std::string where,
                        std::vector<std::string> extra) {
    check_written(sample);
    TokenRequest request;
    const auto ask = [&] {
      request = token_request(*options_.model, sample, std::move(where), std::move(json));
    };
    if (!unless_damaged(sample.id, kNotTaken, ask)) {
      return;
    }
    in_order(std::move(request),
             [this, sample = std::move(sample), extra = std::move(extra)](TokenResult& result) {
               take_tokens(sample, result, extra);
             });
  }

  void take_tokens(SampleSizes sample, const TokenResult& result, std::vector<std::string> extra) {
    if (!result.error.empty()) {
      leave_out_damaged(sample.id, kDamaged, result.error);
      return;
    }
    std::int64_t targets = 0;
    for (const TokenRange& range : result.tokens.targets) {
      targets += range.size();
    }
    sample.prompt_chars = result.prompt_chars;
    sample.response_chars = targets > 0 ? result.response_chars : 0;
    sample.prompt_tokens = std::ssize(result.tokens.ids) - targets;
    sample.response_tokens = targets;
    sample.prompt_tokens_estimate = *sample.prompt_tokens;
    sample.response_tokens_estimate = targets;
    const std::string id = sample.id;
    if (add(
            std::move(sample), [] { return std::nullopt; }, std::move(extra))) {
      tokens_.add(id, result.tokens);
    }
  }

  // A sample that `index`, read from `path`, has already measured.
  void add_row(const fs::path& path,
               const Index& index,
               SampleSizes sample,
               std::vector<std::string> extra) {
    check_new(sample.id, path.string());
    const SampleLocation location =
        sample.location ? located(index, *sample.location) : SampleLocation();
    if (sample.location) {
      sample.location = named_from(location, folder_);
    }
    const auto check = [&] {
      if (options_.verify && sample.location) {
        verify(sample, read_sample(location, sample.id), location.shard);
      }
    };
    if (!unless_damaged(sample.id, kDamaged, check)) {
      return;
    }
    const std::string id = sample.id;
    const std::string where = fmt::format("sample '{}' in '{}'", id, location.shard);
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
      if (unless_damaged(id, kDamaged, read)) {
        tokenize_and_add(std::move(sample), std::move(json), where, std::move(extra));
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

  static bool same_videos(const SampleSizes& sample,
                          const RawSample& raw,
                          const std::string& where) {
    bool same = raw.videos.size() == sample.videos.size();
    for (std::size_t video = 0; same && video < raw.videos.size(); ++video) {
      const VideoSize& given = sample.videos[video];
      if (const std::optional<VideoFile>& file = raw.videos[video].file) {
        same = measure_video_file(*file, /*verify=*/true, where) == given;
        continue;
      }
      same = std::cmp_equal(raw.videos[video].frames.size(), given.frames.value_or(0));
      for (const std::string& frame : raw.videos[video].frames) {
        same &= decode_image(frame, where).size == given.size;
      }
    }
    return same;
  }

  static void verify(const SampleSizes& sample, const RawSample& raw, const std::string& file) {
    const std::string where = fmt::format("sample '{}' in '{}'", sample.id, file);
    std::vector<ImageSize> sizes;
    for (const std::string& image : raw.images) {
      sizes.push_back(decode_image(image, where).size);
    }
    std::vector<double> seconds;
    for (const std::string& clip : raw.audio) {
      seconds.push_back(decode_audio(clip, where).info.seconds());
    }
    if (sizes != sample.images || seconds != sample.audio_seconds ||
        !same_videos(sample, raw, where)) {
      throw InvalidInput(fmt::format(
          "{}: its images, videos or clips are not of the sizes that the index says", where));
    }
  }

  // `text` gives the sample's text, or nothing where only sizes are known. False if it is left out.
  template <class TextSource>
  bool add(SampleSizes sample, const TextSource& text, std::vector<std::string> extra) {
    if (sample.response_chars == 0) {
      reject(sample.id, kEmptyResponse, options_.empty_response);
      return false;
    }
    if (options_.model) {
      try {
        sample_work(*options_.model, sample);
      } catch (const InvalidInput& error) {
        leave_out_damaged(sample.id, kNotTaken, error.what());
        return false;
      }
    }
    if (limit_ > 0) {
      const std::int64_t excess = sample_work(*options_.model, sample).llm_tokens - limit_;
      if (excess > 0 && options_.too_long != BadSampleRule::kTruncate) {
        reject(sample.id, fmt::format("{} (limit {} tokens)", kTooLong, limit_), options_.too_long);
        return false;
      }
      if (excess > 0 && !truncate(sample, excess, text())) {
        reject(sample.id, kCannotBeCut, BadSampleRule::kLeaveOut);
        return false;
      }
    }
    if (options_.model) {
      llm_tokens_.push_back(sample_work(*options_.model, sample).llm_tokens);
    }
    result_.index.samples.push_back(std::move(sample));
    result_.index.extra_values.push_back(std::move(extra));
    return true;
  }

  // Takes `excess` tokens from the prompt; false when it is shorter than that.
  bool truncate(SampleSizes& sample, std::int64_t excess, const std::optional<SampleText>& text) {
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

  void reject(const std::string& id, const std::string& reason, BadSampleRule rule) {
    if (rule == BadSampleRule::kRefuse) {
      refusals_.ids[reason].push_back(id);
      return;
    }
    result_.summary.left_out.push_back({id, reason});
    ++result_.summary.reasons["left out: " + reason];
  }

  void summarise() {
    std::vector<std::int64_t> text;
    std::vector<std::int64_t> images;
    std::vector<std::int64_t> pixels;
    std::vector<std::int64_t> milliseconds;
    for (const SampleSizes& sample : result_.index.samples) {
      text.push_back(sample.prompt_tokens.value_or(sample.prompt_tokens_estimate) +
                     sample.response_tokens.value_or(sample.response_tokens_estimate));
      images.push_back(static_cast<std::int64_t>(sample.images.size()));
      for (const ImageSize& size : sample.images) {
        pixels.push_back(std::int64_t{size.width} * size.height);
      }
      result_.summary.videos += std::ssize(sample.videos);
      for (const double seconds : sample.audio_seconds) {
        milliseconds.push_back(std::llround(seconds * 1e3));
      }
    }
    IndexSummary& summary = result_.summary;
    summary.rows = static_cast<std::int64_t>(result_.index.samples.size());
    summary.text_tokens = percentiles(std::move(text));
    summary.images = percentiles(std::move(images));
    summary.pixels = percentiles(std::move(pixels));
    summary.audio_milliseconds = percentiles(std::move(milliseconds));
    if (options_.model) {
      summary.llm_tokens = percentiles(std::move(llm_tokens_));
    }
  }

  const IndexOptions& options_;
  fs::path folder_;         // of the index to be written
  std::int64_t limit_ = 0;  // LLM tokens; 0 = none
  IndexResult result_;
  Refusals refusals_;
  std::optional<TokenWorkers> workers_;  // with a tokenizer
  TokenCacheWriter tokens_;
  std::unordered_map<std::string, std::string> seen_;  // id → where
  std::vector<std::int64_t> llm_tokens_;
  std::int64_t compressed_ = 0;  // shards
};

}  // namespace

IndexResult build_index(const std::vector<fs::path>& data,
                        const fs::path& output,
                        const IndexOptions& options) {
  std::vector<fs::path> files;
  std::vector<std::string> names;  // [file]
  for (const fs::path& given : data) {
    const NamedData named = named_data(given);
    for (fs::path& file : list_data({named.path}, options.split)) {
      files.push_back(std::move(file));
      names.push_back(named.name);
    }
  }
  if (files.empty()) {
    list_data({});  // refuses
  }
  IndexBuilder builder(output, options);
  std::vector<fs::path> measured;
  std::remove_copy_if(files.begin(), files.end(), std::back_inserter(measured), is_index_file);
  MeasuredFiles samples(std::move(measured), builder.measuring());
  ReadProgress progress(files);
  for (std::size_t i = 0; i < files.size(); ++i) {
    progress.begin_file(files[i]);
    if (is_index_file(files[i])) {
      builder.add_index(files[i], names[i], progress);
    } else {
      builder.add_file(files[i], names[i], samples, progress);
    }
  }
  progress.finish();
  IndexResult result = builder.finish(files);
  builder.write_tokens(output, result.index);
  write_index(result.index, output);
  return result;
}

}  // namespace entrain
