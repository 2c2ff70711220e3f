// Python processes that turn samples' texts into token ids, while the program measures the next
// samples.
//
// Read first: TokenWorkers. What they do and the protocol: entrain/python/entrain/tokens.py.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "entrain/core/base/python_process.h"
#include "entrain/core/dataset/token_cache.h"
#include "entrain/core/spec/media_text.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/sample.h"
#include "entrain/core/spec/vision_sizes.h"

namespace entrain {

struct TokenizerOptions {
  std::filesystem::path folder;         // with tokenizer.json
  std::filesystem::path chat_template;  // empty: the folder's
  bool loss_on_all = false;             // all of a text has loss, not answers alone
  int num_workers = 1;                  // processes, >= 1
  // Of the model's family, where the model has an encoder for it.
  std::optional<MediaText> image_text;
  std::optional<MediaText> video_text;
  std::optional<MediaText> audio_text;
  // The tokenizer adds its special tokens to chats that do not begin with its first one, as the
  // processors of models with media do.
  bool chat_specials = false;
  std::int64_t time = 0;  // that templates see, in seconds since 1970; 0: now
  PythonProgram program;  // that tokenizes
};

// One sample.
struct TokenRequest {
  std::string where;  // of the text, for messages
  std::string json;   // the text
  std::vector<ImageTiles> images;
  std::vector<std::vector<double>> videos;  // [video][temporal patch] its time in seconds
  std::int64_t num_clips = 0;
};

// Throws  InvalidInput naming `where`: videos that the model's encoder cannot read for training, an
//         impossible size.
TokenRequest token_request(const ModelSpec& model,
                           const SampleSizes& sizes,
                           std::string where,
                           std::string json);

struct TokenResult {
  TextTokens tokens;
  std::int64_t prompt_chars = 0;    // Unicode code points without loss
  std::int64_t response_chars = 0;  // with loss
  std::string error;                // why there are none; names `where`
};

class TokenWorkers {
 public:
  // Starts all processes.
  // Throws  InvalidInput for a damaged tokenizer, one without the family's placeholders or whose
  //         tokens have no bytes, a template that does not compile, missing Python packages;
  //         SystemFailure if a process does not start.
  TokenWorkers(const TokenizerOptions& options, const ModelSpec& model);
  ~TokenWorkers();
  TokenWorkers(const TokenWorkers&) = delete;
  TokenWorkers& operator=(const TokenWorkers&) = delete;

  [[nodiscard]] const TokenFacts& facts() const { return facts_; }

  // Calls `take` with the request's result, or an empty one without a request, sooner or later: in
  // the order of the calls of push(), whatever the number of workers, and within push() or flush().
  // Throws  SystemFailure naming the sample if a worker ended or failed; what `take` throws.
  void push(std::optional<TokenRequest> request, std::function<void(TokenResult&)> take);
  // All that is on its way.
  void flush();

  // Bytes of every token. Requires  nothing is on its way.
  std::vector<std::string> table();

 private:
  struct Entry {
    bool requested = false;
    std::function<void(TokenResult&)> take;
  };

  void send();
  void receive();
  [[nodiscard]] TokenResult result_of(const Json& document, const TokenRequest& request) const;
  void take_next(TokenResult& result);

  std::vector<std::unique_ptr<PythonProcess>> workers_;
  std::vector<std::vector<TokenRequest>> batches_;  // [worker] on its way
  std::vector<TokenRequest> waiting_;               // the next batch
  std::deque<Entry> entries_;                       // not yet taken, in order
  std::size_t next_ = 0;                            // worker of the next batch
  TokenFacts facts_;
};

// Whether the tokenizer is one of this model: ids within its vocabulary, placeholders of these ids.
//
// Throws  InvalidInput naming the folder and what does not fit.
void check_tokenizer(const TokenFacts& facts,
                     const TokenizerOptions& options,
                     std::int64_t vocab_size);

}  // namespace entrain
