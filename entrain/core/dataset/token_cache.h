// The token ids of an index's samples, in a file beside it (`train.csv` → `train.tokens`): what a
// Hugging Face tokenizer and chat template made of their texts when the index was made.
//
// Read first: TokenCache. Training and evaluation map the file and need no tokenizer.
//
// Layout, little-endian:
//   8 bytes   "etokens1": name and version
//   5 × u64   bytes of the facts; samples S; values V; table entries T; bytes of the table B
//   facts     JSON (TokenFacts), with spaces to a multiple of 8 bytes
//   S × 2 u64 hash_of(id) and the sample's first value, by rising hash
//   V × u32   of every sample: ids N, ranges R, slots L; N ids; R × begin, end; L × position,
//   number (T+1) u64 where the bytes of every id begin; B bytes
// The index's text_digest is "tokens-" and the digest of the whole file, so that it names
// tokenizer, template and rule of the loss as well as every token.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/base/mapped_file.h"
#include "entrain/core/dataset/text.h"

namespace entrain {

// Where the features of one segment, or of the windows of one clip, go.
struct FeatureSlot {
  std::int64_t position = 0;  // id before which they are, in [0, number of ids]
  std::int64_t number = 0;    // all tiles of all images, then the videos' patches, then the clips
  bool operator==(const FeatureSlot&) const = default;
};

// A sample's text, without the places of features.
struct TextTokens {
  std::vector<std::int64_t> ids;
  std::vector<TokenRange> targets;  // of `ids`; no slot is inside of one
  std::vector<FeatureSlot> slots;   // by rising position; numbers are 0, 1, … in any order
  bool operator==(const TextTokens&) const = default;
};

// Throws  InvalidInput naming `where` for anything that the comments of TextTokens rule out.
void validate(const TextTokens& tokens, std::int64_t vocabulary, const std::string& where);

// The text with its features' places.
//
// Shapes  features, placeholders: [slot number] how many places, and the id that they hold; the
//         result's feature_begin: [slot number].
TokenizedSample with_features(const TextTokens& tokens,
                              const std::vector<std::int64_t>& features,
                              const std::vector<std::int64_t>& placeholders);

// About the tokenizer.
struct TokenFacts {
  std::int64_t vocabulary = 0;    // largest id + 1
  std::int64_t image_token = -1;  // ids of the placeholders; -1: there is none
  std::int64_t video_token = -1;
  std::int64_t audio_token = -1;
  std::vector<std::int64_t> stop;  // ids that end an answer
  std::int64_t strip = 0;          // spaces that decoding takes from a text's front, at most
  std::string tokenizer;           // digests of the tokenizer's files and of the template
  std::string chat_template;
  std::string loss;  // "answers" or "all"
  // Digest of what else ids depend on: how media are written, and the model's encoders, which say
  // how many places they have. Empty in files that do not say so.
  std::string settings = {};

  bool operator==(const TokenFacts&) const = default;
  [[nodiscard]] std::string text() const;  // equal facts have equal texts
};
TokenFacts token_facts_from_json(const Json& document, const std::string& where);

// Collects what a file will hold.
class TokenCacheWriter {
 public:
  // Throws  InternalError if the id is there already.
  void add(const std::string& id, const TextTokens& tokens);
  // `table`: [id] bytes. Returns the index's text_digest.
  // Throws  SystemFailure when `path` cannot be written; no partial file is left.
  std::string write(const std::filesystem::path& path,
                    const TokenFacts& facts,
                    const std::vector<std::string>& table) const;

 private:
  std::map<std::uint64_t, std::uint64_t> first_;  // hash of an id → its first value
  std::vector<std::uint32_t> values_;
};

// Thread-safe.
class TokenCache {
 public:
  // Throws  InvalidInput naming the file: there is none, its digest is not `text_digest`, or it is
  //         no such file.
  TokenCache(const std::filesystem::path& path, std::string_view text_digest);

  [[nodiscard]] const TokenFacts& facts() const { return facts_; }
  // Throws  InvalidInput naming file and id: no such sample, or numbers out of range.
  [[nodiscard]] TextTokens sample(const std::string& id) const;
  // The text of the ids, special tokens left out.
  [[nodiscard]] std::string decode(const std::vector<std::int64_t>& ids) const;

 private:
  void read_header();
  [[noreturn]] void fail(const std::string& message) const;
  [[nodiscard]] std::uint64_t number_at(std::uint64_t offset) const;
  [[nodiscard]] std::uint32_t value_at(std::uint64_t index) const;

  std::filesystem::path path_;
  std::optional<MappedFile> file_;
  std::string_view bytes_;  // of the file
  TokenFacts facts_;
  std::uint64_t num_samples_ = 0;
  std::uint64_t num_values_ = 0;
  std::uint64_t num_entries_ = 0;
  std::uint64_t directory_ = 0;  // offsets of the parts
  std::uint64_t values_ = 0;
  std::uint64_t table_ = 0;
  std::uint64_t table_bytes_ = 0;
};

// `train.csv` and `train.csv.gz` → `train.tokens`, in the same folder.
std::filesystem::path token_cache_path(const std::filesystem::path& index);
// Whether lengths with this digest are those of a token cache.
bool is_token_digest(std::string_view text_digest);

}  // namespace entrain
