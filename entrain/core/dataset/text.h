// The byte-level tokenizer and the chat template: from a sample's texts to token ids.
//
// Layout: <bos> <user> (<image_start> feature… <image_end>)* prompt bytes <assistant> response
// bytes <eos> Loss falls on response bytes and <eos>. Feature positions hold kImageToken.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace entrain {

inline constexpr int kBosToken = 256;
inline constexpr int kEosToken = 257;
inline constexpr int kUserToken = 258;
inline constexpr int kAssistantToken = 259;
inline constexpr int kImageStartToken = 260;
inline constexpr int kImageEndToken = 261;
inline constexpr int kImageToken = 262;  // a position that an image feature fills
inline constexpr int kVocabSize = 264;   // padded to a multiple of 8

struct SampleText {
  std::string prompt;
  std::string response;
};

struct TokenizedSample {
  std::vector<std::int64_t> ids;  // [llm_tokens]
  std::int64_t target_begin =
      0;  // first position with loss as a target; the rest of ids follows it
  std::vector<std::int64_t> feature_begin;  // [segment] first feature position of each image
};

// Texts of a WebDataset JSON member: question/answer, prompt/response or caption (empty prompt).
// Throws  InvalidInput naming `where`.
SampleText sample_text(std::string_view json, const std::string& where);

// Tokens without loss (template and image marks included, features not) and tokens with loss.
std::int64_t prompt_tokens(const SampleText& text, int num_images);
std::int64_t response_tokens(const SampleText& text);

TokenizedSample tokenize(const SampleText& text,
                         const std::vector<std::int64_t>& features_per_image);

// UTF-8 text of byte tokens; specials left out.
std::string detokenize(const std::vector<std::int64_t>& ids);

// Changes whenever tokenizer or template change; indices carry it.
std::string text_digest();

}  // namespace entrain
