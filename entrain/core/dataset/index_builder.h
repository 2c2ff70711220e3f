// Collects the rows of an index: which samples stay, their tokens, what is reported of them.
//
// Read first: IndexBuilder. build_index() opens the files and gives it their samples in order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "entrain/core/dataset/index.h"
#include "entrain/core/dataset/index_reports.h"
#include "entrain/core/dataset/measured_files.h"
#include "entrain/core/dataset/partial_index.h"
#include "entrain/core/dataset/text.h"
#include "entrain/core/dataset/token_workers.h"

namespace entrain {

// Why samples are left out, in the summary.
inline constexpr const char* kDamagedSample = "cannot be read";
inline constexpr const char* kRefusedSize = "of a size that the model refuses";

class IndexBuilder {
 public:
  // Starts the tokenizer if there is one. `options` outlives this.
  //
  // Throws  as build_index() does for options that do not fit together.
  IndexBuilder(const std::filesystem::path& output, const IndexOptions& options);

  // How the files that are no indices are measured.
  [[nodiscard]] MeasuredFiles::Options measuring() const;
  // Names everything that measurements and tokens depend on, but for the files.
  [[nodiscard]] std::string settings() const;

  // The next file; its samples follow. `name`: put in front of ids. With `kept` samples are kept as
  // they were measured, with their tokens.
  //
  // Throws  InvalidInput for a damaged file where such are refused.
  void begin_file(const FileToMeasure& file,
                  const std::string& name,
                  const MeasuredFile& measured,
                  std::shared_ptr<PartialFileWriter> kept);
  // A sample of that file; `tokens`: those of an earlier run.
  void add_sample(MeasuredSample sample, std::optional<TokenResult> tokens = {});
  void end_file();

  // All rows of an index.
  void add_index(const std::filesystem::path& path,
                 const std::string& name,
                 ReadProgress& progress);

  // `files`: all that were added.
  IndexResult finish(const std::vector<std::filesystem::path>& files);
  // Before the index, which names its digest.
  void write_tokens(const std::filesystem::path& output, Index& index);

 private:
  using Extra = std::vector<std::string>;

  void start_tokenizer(const std::filesystem::path& output);
  void in_order(std::optional<TokenRequest> request, std::function<void(TokenResult&)> take);
  void use_text_digest(const std::string& digest, const std::filesystem::path& path);
  std::vector<std::size_t> take_columns(const std::vector<std::string>& names);
  void check_new(const std::string& id, const std::string& where);
  [[nodiscard]] std::string nothing_stays(const std::vector<std::filesystem::path>& files) const;
  void damaged(const std::string& id, const char* kind, const std::string& reason);
  void leave_out_damaged(const std::string& id, const char* kind, const std::string& reason);
  void check_written(const SampleSizes& sample) const;
  void tokenize_and_add(
      SampleSizes sample, std::string json, std::string where, Extra extra, std::string kept);
  void take_tokens(SampleSizes sample, const TokenResult& result, Extra extra);
  void add_row(const std::filesystem::path& path,
               const Index& index,
               const std::string& own_id,
               SampleSizes sample,
               Extra extra);
  bool add(SampleSizes sample, const std::function<std::optional<SampleText>()>& text, Extra extra);
  bool truncate(SampleSizes& sample, std::int64_t excess, const std::optional<SampleText>& text);
  void reject(const std::string& id, const std::string& reason, BadSampleRule rule);
  // Runs `read`; false when what it reads is damaged and is therefore left out, by its `id`.
  template <class Read>
  bool unless_damaged(const std::string& id, const char* kind, const Read& read);

  const IndexOptions& options_;
  std::filesystem::path folder_;  // of the index to be written
  std::int64_t limit_ = 0;        // LLM tokens; 0 = none
  IndexResult result_;
  Refusals refusals_;
  std::optional<TokenWorkers> workers_;  // with a tokenizer
  TokenCacheWriter tokens_;
  std::unordered_map<std::string, std::string> seen_;  // id → where
  std::vector<std::int64_t> llm_tokens_;
  std::int64_t compressed_ = 0;                // shards
  std::map<std::string, std::int64_t> notes_;  // on files → how many

  // Of the file that samples are added of.
  std::string name_;
  SampleLocation location_;
  std::shared_ptr<PartialFileWriter> kept_;
};

}  // namespace entrain
