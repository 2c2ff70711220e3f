#include "entrain/core/dataset/token_cache.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"

namespace entrain {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::string_view kTokenMagic = "etokens1";
constexpr std::string_view kTokenDigest = "tokens-";
constexpr std::uint64_t kHeaderBytes = 8 + 5 * 8;
constexpr std::uint64_t kDirectoryEntry = 16;
constexpr std::uint64_t kMostSegments = std::uint64_t{1} << 20;  // of a sample

template <class T>
void append_number(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

Json facts_json(const TokenFacts& facts) {
  Json placeholders = Json::object();
  if (facts.image_token >= 0) {
    placeholders["image"] = facts.image_token;
  }
  if (facts.video_token >= 0) {
    placeholders["video"] = facts.video_token;
  }
  if (facts.audio_token >= 0) {
    placeholders["audio"] = facts.audio_token;
  }
  return {{"vocabulary", facts.vocabulary},
          {"placeholders", placeholders},
          {"stop", facts.stop},
          {"strip", facts.strip},
          {"tokenizer", facts.tokenizer},
          {"template", facts.chat_template},
          {"loss", facts.loss},
          {"settings", facts.settings}};
}

}  // namespace

std::string TokenFacts::text() const {
  return facts_json(*this).dump();
}

void validate(const TextTokens& tokens, std::int64_t vocabulary, const std::string& where) {
  const auto check = [&](bool holds, const char* what) {
    if (!holds) {
      throw InvalidInput(fmt::format("{}: {}", where, what));
    }
  };
  const auto length = std::ssize(tokens.ids);
  for (const std::int64_t id : tokens.ids) {
    check(id >= 0 && id < vocabulary, "an id outside of the tokenizer's vocabulary");
  }
  std::int64_t end = 0;
  for (const TokenRange& range : tokens.targets) {
    check(range.begin >= end && range.size() > 0 && range.end <= length,
          "ranges of targets that do not rise within the text");
    end = range.end;
  }
  std::vector<char> seen(tokens.slots.size());
  std::int64_t position = 0;
  for (const FeatureSlot& slot : tokens.slots) {
    check(slot.position >= position && slot.position <= length,
          "places of features that do not rise within the text");
    check(slot.number >= 0 && slot.number < std::ssize(seen) &&
              std::exchange(seen[static_cast<std::size_t>(slot.number)], 1) == 0,
          "places of features that are not numbered once each");
    position = slot.position;
    for (const TokenRange& range : tokens.targets) {
      check(position <= range.begin || position >= range.end,
            "a feature within a range of targets");
    }
  }
  check(tokens.targets.empty() || tokens.targets.front().begin > 0 ||
            (!tokens.slots.empty() && tokens.slots.front().position == 0),
        "a target that nothing precedes");
}

TokenizedSample with_features(const TextTokens& tokens,
                              const std::vector<std::int64_t>& features,
                              const std::vector<std::int64_t>& placeholders) {
  ENTRAIN_INVARIANT(
      features.size() == tokens.slots.size() && placeholders.size() == features.size(),
      "features for other slots");
  TokenizedSample sample;
  sample.feature_begin.resize(features.size());
  auto range = tokens.targets.begin();
  std::int64_t taken = 0;
  // Ids and whole ranges of targets up to position `end` of the text.
  const auto take_text = [&](std::int64_t end) {
    const std::int64_t gain = std::ssize(sample.ids) - taken;
    for (; range != tokens.targets.end() && range->end <= end; ++range) {
      sample.targets.push_back({range->begin + gain, range->end + gain});
    }
    sample.ids.insert(sample.ids.end(), tokens.ids.begin() + taken, tokens.ids.begin() + end);
    taken = end;
  };
  for (const FeatureSlot& slot : tokens.slots) {
    take_text(slot.position);
    const auto number = static_cast<std::size_t>(slot.number);
    sample.feature_begin[number] = std::ssize(sample.ids);
    sample.ids.insert(
        sample.ids.end(), static_cast<std::size_t>(features[number]), placeholders[number]);
  }
  take_text(std::ssize(tokens.ids));
  return sample;
}

TokenFacts token_facts_from_json(const Json& document, const std::string& where) {
  TokenFacts facts;
  ObjectReader reader(document, where);
  facts.vocabulary = reader.required<std::int64_t>("vocabulary");
  ObjectReader placeholders = reader.object("placeholders");
  facts.image_token = placeholders.optional("image", facts.image_token);
  facts.video_token = placeholders.optional("video", facts.video_token);
  facts.audio_token = placeholders.optional("audio", facts.audio_token);
  placeholders.finish();
  facts.stop = reader.list<std::int64_t>("stop");
  facts.strip = reader.required<std::int64_t>("strip");
  facts.tokenizer = reader.required<std::string>("tokenizer");
  facts.chat_template = reader.required<std::string>("template");
  facts.loss = reader.required<std::string>("loss");
  facts.settings = reader.optional("settings", std::string());
  reader.finish();
  return facts;
}

void TokenCacheWriter::add(const std::string& id, const TextTokens& tokens) {
  ENTRAIN_INVARIANT(first_.emplace(hash_of(id), values_.size()).second,
                    fmt::format("two samples with the hash of '{}'", id));
  const auto append = [&](std::int64_t value) {
    values_.push_back(static_cast<std::uint32_t>(value));
  };
  append(std::ssize(tokens.ids));
  append(std::ssize(tokens.targets));
  append(std::ssize(tokens.slots));
  for (const std::int64_t token : tokens.ids) {
    append(token);
  }
  for (const TokenRange& range : tokens.targets) {
    append(range.begin);
    append(range.end);
  }
  for (const FeatureSlot& slot : tokens.slots) {
    append(slot.position);
    append(slot.number);
  }
}

std::string TokenCacheWriter::write(const std::filesystem::path& path,
                                    const TokenFacts& facts,
                                    const std::vector<std::string>& table) const {
  std::string facts_text = facts_json(facts).dump();
  facts_text.resize((facts_text.size() + 7) / 8 * 8, ' ');
  std::string bytes(kTokenMagic);
  std::uint64_t table_bytes = 0;
  for (const std::string& entry : table) {
    table_bytes += entry.size();
  }
  for (const std::uint64_t number : {std::uint64_t{facts_text.size()},
                                     std::uint64_t{first_.size()},
                                     std::uint64_t{values_.size()},
                                     std::uint64_t{table.size()},
                                     table_bytes}) {
    append_number(bytes, number);
  }
  bytes += facts_text;
  for (const auto& [hash, first] : first_) {
    append_number(bytes, hash);
    append_number(bytes, first);
  }
  std::string ending;
  std::uint64_t at = 0;
  append_number(ending, at);
  for (const std::string& entry : table) {
    at += entry.size();
    append_number(ending, at);
  }
  for (const std::string& entry : table) {
    ending += entry;
  }
  write_file(path, [&](std::ostream& out) {
    out << bytes;
    out.write(reinterpret_cast<const char*>(values_.data()),
              static_cast<std::streamsize>(values_.size() * sizeof(std::uint32_t)));
    out << ending;
  });
  return std::string(kTokenDigest) + digest_of_file(path);
}

TokenCache::TokenCache(const std::filesystem::path& path, std::string_view text_digest)
    : path_(path) {
  if (!std::filesystem::is_regular_file(path)) {
    fail("there is no such file, which holds the tokens of the index beside it");
  }
  const std::string found = std::string(kTokenDigest) + digest_of_file(path);
  if (found != text_digest) {
    fail(fmt::format(
        "damaged, or of another index: its digest is {}, the index names {}", found, text_digest));
  }
  bytes_ = file_.emplace(path).bytes();
  read_header();
}

void TokenCache::fail(const std::string& message) const {
  throw InvalidInput(
      fmt::format("'{}': {}; make the index again with `entrain index`", path_.string(), message));
}

std::uint64_t TokenCache::number_at(std::uint64_t offset) const {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes_.data() + offset, sizeof(number));
  return number;
}

std::uint32_t TokenCache::value_at(std::uint64_t index) const {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes_.data() + values_ + index * sizeof(value), sizeof(value));
  return value;
}

void TokenCache::read_header() {
  if (bytes_.size() < kHeaderBytes || !bytes_.starts_with(kTokenMagic)) {
    fail("no file of tokens of this version");
  }
  std::uint64_t facts_bytes = 0;
  std::uint64_t offset = kTokenMagic.size();
  for (std::uint64_t* number :
       {&facts_bytes, &num_samples_, &num_values_, &num_entries_, &table_bytes_}) {
    *number = number_at(std::exchange(offset, offset + 8));
    if (*number > bytes_.size()) {  // so that the sums below cannot overflow
      fail("its header names parts beyond its end");
    }
  }
  directory_ = offset + facts_bytes;
  values_ = directory_ + num_samples_ * kDirectoryEntry;
  table_ = values_ + num_values_ * sizeof(std::uint32_t);
  if (table_ + (num_entries_ + 1) * 8 + table_bytes_ != bytes_.size()) {
    fail("its header does not fit its size");
  }
  facts_ = token_facts_from_json(parse_json(bytes_.substr(offset, facts_bytes), path_.string()),
                                 path_.string());
  if (std::cmp_not_equal(facts_.vocabulary, num_entries_)) {
    fail("its table does not fit its vocabulary");
  }
}

TextTokens TokenCache::sample(const std::string& id) const {
  const std::uint64_t hash = hash_of(id);
  std::uint64_t low = 0;
  for (std::uint64_t high = num_samples_; low < high;) {
    const std::uint64_t middle = (low + high) / 2;
    if (number_at(directory_ + middle * kDirectoryEntry) < hash) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == num_samples_ || number_at(directory_ + low * kDirectoryEntry) != hash) {
    fail(fmt::format("it has no sample '{}'", id));
  }
  std::uint64_t at = number_at(directory_ + low * kDirectoryEntry + 8);
  if (num_values_ < 3 || at > num_values_ - 3) {
    fail(fmt::format("sample '{}' is beyond its end", id));
  }
  const std::uint64_t num_ids = value_at(at);
  const std::uint64_t num_ranges = value_at(at + 1);
  const std::uint64_t num_slots = value_at(at + 2);
  at += 3;
  if (num_slots > kMostSegments || num_ids + 2 * num_ranges + 2 * num_slots > num_values_ - at) {
    fail(fmt::format("sample '{}' reaches beyond its end", id));
  }
  TextTokens tokens;
  const auto next = [&] { return static_cast<std::int64_t>(value_at(at++)); };
  tokens.ids.reserve(num_ids);
  for (std::uint64_t i = 0; i < num_ids; ++i) {
    tokens.ids.push_back(next());
  }
  for (std::uint64_t i = 0; i < num_ranges; ++i) {
    const std::int64_t begin = next();
    tokens.targets.push_back({begin, next()});
  }
  for (std::uint64_t i = 0; i < num_slots; ++i) {
    const std::int64_t position = next();
    tokens.slots.push_back({position, next()});
  }
  validate(tokens, facts_.vocabulary, fmt::format("'{}', sample '{}'", path_.string(), id));
  return tokens;
}

std::string TokenCache::decode(const std::vector<std::int64_t>& ids) const {
  std::string text;
  const std::uint64_t begin = table_ + (num_entries_ + 1) * 8;
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= facts_.vocabulary) {
      continue;  // a row of the model's table that no token has
    }
    const std::uint64_t entry = table_ + static_cast<std::uint64_t>(id) * 8;
    const std::uint64_t from = number_at(entry);
    const std::uint64_t to = number_at(entry + 8);
    if (from > to || to > table_bytes_) {
      fail(fmt::format("the bytes of token {} are beyond its end", id));
    }
    text += bytes_.substr(begin + from, to - from);
  }
  const std::size_t spaces = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(std::min(spaces, static_cast<std::size_t>(facts_.strip)));
}

std::filesystem::path token_cache_path(const std::filesystem::path& index) {
  std::filesystem::path path = index;
  if (path.extension() == ".gz") {
    path.replace_extension();
  }
  return path.replace_extension(".tokens");
}

bool is_token_digest(std::string_view text_digest) {
  return text_digest.starts_with(kTokenDigest);
}

}  // namespace entrain
