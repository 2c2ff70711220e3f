// The byte-level tokenizer and the chat template: from a sample's texts to token ids.
//
// Layout: <bos> <user> (<image_start> feature… <image_end>)* (<audio_mark> feature… <audio_mark>)*
// prompt <assistant> response <eos>, where prompt and response are their UTF-8 bytes. The loss
// covers the response and <eos>; feature positions hold kFeatureToken. Images and audio clips
// together are a sample's media.
//
// A prompt that is too long is cut from its front (the words next to the answer stay). The index
// stores the cut: its prompt_tokens are then fewer than prompt_tokens() of the whole text, and
// cut_prompt() repeats the cut from that number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

inline constexpr int kBosToken = 256;
inline constexpr int kEosToken = 257;
inline constexpr int kUserToken = 258;
inline constexpr int kAssistantToken = 259;
inline constexpr int kImageStartToken = 260;
inline constexpr int kImageEndToken = 261;
inline constexpr int kFeatureToken = 262;    // a position that an encoder's feature fills
inline constexpr int kAudioMarkToken = 263;  // before and after an audio clip's features
inline constexpr int kVocabSize = 264;

struct SampleText {
  std::string prompt;
  std::string response;
};

// Positions [begin, end) of a sample's tokens.
struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
  bool operator==(const TokenRange&) const = default;
};

struct TokenizedSample {
  std::vector<std::int64_t> ids;  // [llm_tokens]
  // Tokens that are targets (predicted with loss, each from the position before): rising, disjoint,
  // not empty, within [1, llm_tokens).
  std::vector<TokenRange> targets;
  // First feature position of each image, then of each video and each clip; a sample reader makes
  // it one of each segment.
  std::vector<std::int64_t> feature_begin;

  [[nodiscard]] std::int64_t num_targets() const;
};

// Checks that the document `json` spells a value as we would write it. `path`: the value's key, or
// its place such as `a[b][0]`.
//
// Throws  InvalidInput naming `where` and `path`: another spelling, such as 1e3 or more digits than
//         a double has.
void check_spelled(const Json& value,
                   std::string_view path,
                   std::string_view json,
                   const std::string& where);

// Texts of a sample: messages, conversations or texts, with one answer at their end; else
// question/answer, prompt/response, caption, text (the last two have no prompt). Other keys are
// left alone. A number, true or false is its own spelling: 3 is "3". Of an answer, response or
// caption that is a list of strings the first one counts. Of a conversation the turns
// before the answer are the prompt, with line breaks between them and without marks of media.
//
// Throws  InvalidInput naming `where`: no JSON object, none of these keys, half of a pair, a value
//         that is an object, an array or null, a number whose spelling JSON leaves open (1e3), a
//         conversation of several answers or that does not end with one.
SampleText sample_text(std::string_view json, const std::string& where);

// Checks that a sample's conversation has as many places for images, videos and clips as the sample
// has, or none of a kind: marks such as <image> in `conversations` and `text`, parts of a type in
// `messages`.
//
// Throws  InvalidInput naming `where`: another number of places than of media.
void check_places(std::string_view json, const SampleSizes& sample, const std::string& where);

// The key `fps` of a WebDataset JSON member with videos: frames per second of their frames, one
// number for all or a list of one each.
//
// Shapes  result: [num_videos], above 0, up to 1000.
// Throws  InvalidInput naming `where`: no such key, another number of numbers, one out of range.
std::vector<double> frames_per_second(std::string_view json,
                                      std::size_t num_videos,
                                      const std::string& where);

// Unicode code points of UTF-8 text.
std::int64_t count_characters(std::string_view text);

// Tokens without loss (template and marks included, features not) and tokens with loss.
std::int64_t prompt_tokens(const SampleText& text, int num_media);
std::int64_t response_tokens(const SampleText& text);

// Shortest cut from the prompt's front, at a code point, that leaves at most `limit` prompt tokens;
// the text's prompt_tokens() is the new number. nullopt if the template alone is longer.
std::optional<SampleText> fit_prompt(SampleText text, int num_media, std::int64_t limit);

// Cuts the prompt from its front so that prompt_tokens() is exactly `tokens`.
//
// Throws  InvalidInput naming `where` when the text has fewer prompt tokens, or `tokens` is less
//         than the template needs: the index does not fit the text.
SampleText cut_prompt(SampleText text,
                      int num_media,
                      std::int64_t tokens,
                      const std::string& where);

// Requires  every feature count >= 0 (0: one that no encoder takes; its marks stay).
TokenizedSample tokenize(const SampleText& text,
                         const std::vector<std::int64_t>& features_per_image,
                         const std::vector<std::int64_t>& features_per_clip = {});

// UTF-8 text of byte tokens; specials left out.
std::string detokenize(const std::vector<std::int64_t>& ids);

// Changes whenever tokenizer or template change; stored in indices.
std::string text_digest();

}  // namespace entrain
