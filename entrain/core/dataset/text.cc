#include "entrain/core/dataset/text.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"

namespace entrain {
namespace {

struct KeyPair {
  const char* prompt;  // nullptr: there is none
  const char* response;
};
constexpr std::array<KeyPair, 4> kTextKeys = {KeyPair{"question", "answer"},
                                              KeyPair{"prompt", "response"},
                                              KeyPair{nullptr, "caption"},
                                              KeyPair{nullptr, "text"}};

// Whether the document spells a value of `key` as `text`.
bool is_spelled(std::string_view json, const std::string& key, std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::string quoted = "\"" + key + "\"";
  for (std::size_t at = json.find(quoted); at != std::string_view::npos;
       at = json.find(quoted, at + 1)) {
    const std::size_t colon = json.find_first_not_of(kSpaces, at + quoted.size());
    if (colon == std::string_view::npos || json[colon] != ':') {
      continue;
    }
    const std::size_t value = json.find_first_not_of(kSpaces, colon + 1);
    if (value != std::string_view::npos && json.substr(value).starts_with(text)) {
      return json.find_first_of("0123456789.eE+-", value + text.size()) != value + text.size();
    }
  }
  return false;
}

// A string, or a number or truth value as JSON spells it; of a list of answers the first. `json` is
// the whole document.
std::string text_value(const Json& document,
                       const char* key,
                       bool is_answer,
                       std::string_view json,
                       const std::string& where) {
  const auto found = document.find(key);
  if (found == document.end()) {
    throw InvalidInput(fmt::format("{}: key '{}' is missing beside its partner", where, key));
  }
  if (found->is_string()) {
    return found->get<std::string>();
  }
  if (is_answer && found->is_array()) {
    if (found->empty() || !std::all_of(found->begin(), found->end(), [](const Json& answer) {
          return answer.is_string();
        })) {
      throw InvalidInput(
          fmt::format("{}: '{}' is a list; of a list of strings the first is taken, and this is {}",
                      where,
                      key,
                      found->empty() ? "empty" : "one of other values"));
    }
    return found->front().get<std::string>();
  }
  if (!found->is_number() && !found->is_boolean()) {
    throw InvalidInput(
        fmt::format("{}: '{}' is of type {}; a string, number, true or false is needed",
                    where,
                    key,
                    found->type_name()));
  }
  check_spelled(*found, key, json, where);
  return found->dump();
}

// A turn's words, without the marks of media.
std::string words_of(const Json& turn, const std::string& where) {
  const auto content = turn.find(turn.contains("value") ? "value" : "content");
  std::string words;
  if (content != turn.end() && content->is_string()) {
    words = content->get<std::string>();
    for (const std::string_view mark : {"<image>", "<video>", "<audio>"}) {
      for (std::size_t at = words.find(mark); at != std::string::npos; at = words.find(mark, at)) {
        const bool line = words.compare(at + mark.size(), 1, "\n") == 0;
        words.erase(at, mark.size() + (line ? 1 : 0));
      }
    }
    return words;
  }
  if (content == turn.end() || !content->is_array()) {
    throw InvalidInput(fmt::format("{}: a string or a list of parts is needed", where));
  }
  for (const Json& part : *content) {
    const auto text = part.is_object() ? part.find("text") : part.end();
    if (part.is_object() && text != part.end() && text->is_string()) {
      words += text->get<std::string>();
    }
  }
  return words;
}

SampleText conversation_text(const Json& turns, const std::string& where) {
  SampleText text;
  if (turns.is_array() && turns.size() == 1 && turns[0].is_object() &&
      turns[0].contains("assistant")) {  // of `texts`
    const Json& pair = turns[0];
    const Json messages = {{{"role", "user"}, {"content", pair.value("user", Json(""))}},
                           {{"role", "assistant"}, {"content", pair.at("assistant")}}};
    return conversation_text(messages, where);
  }
  for (std::size_t i = 0; turns.is_array() && i < turns.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", where, i);
    const Json& turn = turns[i];
    const auto role =
        turn.is_object() ? turn.find(turn.contains("from") ? "from" : "role") : turn.end();
    if (!turn.is_object() || role == turn.end()) {
      throw InvalidInput(fmt::format("{}: an object with `role` or `from` is needed", place));
    }
    const bool answer = *role == "gpt" || *role == "assistant";
    const bool last = i + 1 == turns.size();
    if (answer != last) {
      throw InvalidInput(fmt::format(
          "{}: {}; texts of bytes have one answer, at their end: --tokenizer FOLDER takes "
          "conversations as they are",
          place,
          answer ? "an answer with turns behind it" : "the last turn, and no answer"));
    }
    std::string words = words_of(turn, place);
    if (answer) {
      text.response = std::move(words);
    } else {
      text.prompt += (text.prompt.empty() ? "" : "\n") + words;
    }
  }
  if (!turns.is_array() || turns.empty()) {
    throw InvalidInput(fmt::format("{}: a list of at least one turn is needed", where));
  }
  return text;
}

// How often "<image>" stands in it, for kind "image".
std::size_t marks_of(std::string_view words, std::string_view kind) {
  const std::string mark = fmt::format("<{}>", kind);
  std::size_t count = 0;
  for (std::size_t at = words.find(mark); at != std::string_view::npos;
       at = words.find(mark, at + mark.size())) {
    ++count;
  }
  return count;
}

// Parts of messages of the types "image", "image_url" and "input_image", for kind "image".
std::size_t parts_of_kind(const Json& messages, std::string_view kind) {
  std::size_t count = 0;
  for (const Json& message : messages) {
    const auto content = message.is_object() ? message.find("content") : message.end();
    if (!message.is_object() || content == message.end() || !content->is_array()) {
      continue;
    }
    for (const Json& part : *content) {
      const auto type = part.is_object() ? part.find("type") : part.end();
      count += part.is_object() && type != part.end() &&
                       (*type == kind || *type == fmt::format("{}_url", kind) ||
                        *type == fmt::format("input_{}", kind))
                   ? 1
                   : 0;
    }
  }
  return count;
}

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

std::int64_t template_tokens(int num_media) {
  return 3 + 2 * static_cast<std::int64_t>(num_media);  // bos, user, assistant; marks
}

void append_bytes(std::vector<std::int64_t>& ids, std::string_view text) {
  for (const char byte : text) {
    ids.push_back(static_cast<unsigned char>(byte));
  }
}

}  // namespace

void check_spelled(const Json& value,
                   std::string_view path,
                   std::string_view json,
                   const std::string& where) {
  const std::size_t step = path.rfind('[');
  const std::string key(path.ends_with(']') ? path.substr(step + 1, path.size() - step - 2) : path);
  if (!is_spelled(json, key, value.dump())) {
    throw InvalidInput(
        fmt::format("{}: '{}' is a number that JSON may spell in several ways, such as {}; put it "
                    "in quotes",
                    where,
                    path,
                    value.dump()));
  }
}

std::int64_t TokenizedSample::num_targets() const {
  std::int64_t count = 0;
  for (const TokenRange& range : targets) {
    count += range.size();
  }
  return count;
}

void check_places(std::string_view json, const SampleSizes& sample, const std::string& where) {
  const Json document = parse_json(json, where);
  const auto turns = document.find("conversations");
  const auto messages = document.find("messages");
  const auto text = document.find("text");
  constexpr std::array<std::string_view, 3> kKinds = {"image", "video", "audio"};
  const std::array<std::size_t, 3> media = {
      sample.images.size(), sample.videos.size(), sample.audio_seconds.size()};
  for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
    std::size_t places = 0;
    if (messages != document.end()) {
      places = parts_of_kind(*messages, kKinds[kind]);
    } else if (turns != document.end()) {
      for (const Json& turn : *turns) {
        const auto value = turn.is_object() ? turn.find("value") : turn.end();
        if (turn.is_object() && value != turn.end() && value->is_string()) {
          places += marks_of(value->get_ref<const std::string&>(), kKinds[kind]);
        }
      }
    } else if (text != document.end() && text->is_string()) {
      places = marks_of(text->get_ref<const std::string&>(), kKinds[kind]);
    }
    if (places != 0 && places != media[kind]) {
      throw InvalidInput(fmt::format("{}: {} places for {} in the text, and the sample has {}",
                                     where,
                                     places,
                                     kKinds[kind],
                                     media[kind]));
    }
  }
}

SampleText sample_text(std::string_view json, const std::string& where) {
  const Json document = parse_json(json, where);
  if (!document.is_object()) {
    throw InvalidInput(
        fmt::format("{}: a JSON object is needed, given {}", where, document.type_name()));
  }
  for (const char* key : {"messages", "conversations", "texts"}) {
    if (const auto turns = document.find(key); turns != document.end()) {
      return conversation_text(*turns, fmt::format("{}: {}", where, key));
    }
  }
  for (const KeyPair& keys : kTextKeys) {
    const bool has_prompt = keys.prompt != nullptr && document.contains(keys.prompt);
    if (has_prompt || document.contains(keys.response)) {
      SampleText text;
      if (keys.prompt != nullptr) {
        text.prompt = text_value(document, keys.prompt, false, json, where);
      }
      text.response = text_value(
          document, keys.response, std::string_view(keys.response) != "text", json, where);
      return text;
    }
  }
  throw InvalidInput(fmt::format(
      "{}: no text; needed is messages, conversations, texts, question and answer, prompt and "
      "response, caption, or text",
      where));
}

std::vector<double> frames_per_second(std::string_view json,
                                      std::size_t num_videos,
                                      const std::string& where) {
  constexpr double kMostFps = 1000.0;
  const Json document = parse_json(json, where);
  const Json given = document.is_object() ? document.value("fps", Json()) : Json();
  if (given.is_null()) {
    throw InvalidInput(fmt::format(
        "{}: no 'fps', the frames per second of the sample's {} videos", where, num_videos));
  }
  std::vector<double> result;
  for (const Json& fps : given.is_array() ? given : Json(std::vector<Json>(num_videos, given))) {
    if (!fps.is_number() || !(fps.get<double>() > 0 && fps.get<double>() <= kMostFps)) {
      throw InvalidInput(fmt::format(
          "{}: fps: {} given; allowed: above 0, up to {}", where, fps.dump(), kMostFps));
    }
    result.push_back(fps.get<double>());
  }
  if (result.size() != num_videos) {
    throw InvalidInput(
        fmt::format("{}: fps: {} numbers given for {} videos", where, result.size(), num_videos));
  }
  return result;
}

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return !is_continuation(byte); });
}

std::int64_t prompt_tokens(const SampleText& text, int num_media) {
  return template_tokens(num_media) + static_cast<std::int64_t>(text.prompt.size());
}

std::int64_t response_tokens(const SampleText& text) {
  return static_cast<std::int64_t>(text.response.size()) + 1;
}

std::optional<SampleText> fit_prompt(SampleText text, int num_media, std::int64_t limit) {
  const std::int64_t excess = prompt_tokens(text, num_media) - limit;
  if (excess <= 0) {
    return text;
  }
  if (std::cmp_greater(excess, text.prompt.size())) {
    return std::nullopt;
  }
  auto cut = static_cast<std::size_t>(excess);
  while (cut < text.prompt.size() && is_continuation(text.prompt[cut])) {
    ++cut;
  }
  text.prompt.erase(0, cut);
  return text;
}

SampleText cut_prompt(SampleText text,
                      int num_media,
                      std::int64_t tokens,
                      const std::string& where) {
  const std::int64_t whole = prompt_tokens(text, num_media);
  const std::int64_t least = template_tokens(num_media);
  if (tokens > whole || tokens < least) {
    throw InvalidInput(fmt::format(
        "{}: the index says {} prompt tokens, the text and its {} images and clips have {} "
        "(at least {} after cutting); make the index again",
        where,
        tokens,
        num_media,
        whole,
        least));
  }
  text.prompt.erase(0, static_cast<std::size_t>(whole - tokens));
  return text;
}

TokenizedSample tokenize(const SampleText& text,
                         const std::vector<std::int64_t>& features_per_image,
                         const std::vector<std::int64_t>& features_per_clip) {
  const auto num_media = static_cast<int>(features_per_image.size() + features_per_clip.size());
  TokenizedSample sample;
  const std::int64_t length = prompt_tokens(text, num_media) + response_tokens(text) +
                              std::reduce(features_per_image.begin(), features_per_image.end()) +
                              std::reduce(features_per_clip.begin(), features_per_clip.end());
  sample.ids.reserve(static_cast<std::size_t>(length));
  sample.ids = {kBosToken, kUserToken};
  const auto append = [&](int before, std::int64_t features, int behind) {
    ENTRAIN_INVARIANT(features >= 0, "a negative number of features");
    sample.ids.push_back(before);
    sample.feature_begin.push_back(static_cast<std::int64_t>(sample.ids.size()));
    sample.ids.insert(sample.ids.end(), static_cast<std::size_t>(features), kFeatureToken);
    sample.ids.push_back(behind);
  };
  for (const std::int64_t features : features_per_image) {
    append(kImageStartToken, features, kImageEndToken);
  }
  for (const std::int64_t features : features_per_clip) {
    append(kAudioMarkToken, features, kAudioMarkToken);
  }
  append_bytes(sample.ids, text.prompt);
  sample.ids.push_back(kAssistantToken);
  const auto target_begin = static_cast<std::int64_t>(sample.ids.size());
  append_bytes(sample.ids, text.response);
  sample.ids.push_back(kEosToken);
  sample.targets = {{target_begin, length}};
  ENTRAIN_INVARIANT(std::cmp_equal(sample.ids.size(), length), "token count off its formula");
  return sample;
}

std::string detokenize(const std::vector<std::int64_t>& ids) {
  std::string text;
  for (const std::int64_t id : ids) {
    if (id >= 0 && id < 256) {
      text.push_back(static_cast<char>(static_cast<unsigned char>(id)));
    }
  }
  return text;
}

std::string text_digest() {
  // The tokens of one sample that shows every part of the layout.
  const TokenizedSample probe = tokenize({"a question, à", "an answer"}, {1, 2}, {1});
  return digest_of(fmt::format("byte-chat vocabulary {} targets from {} ids {}",
                               kVocabSize,
                               probe.targets.front().begin,
                               fmt::join(probe.ids, " ")));
}

}  // namespace entrain
