#include "entrain/core/spec/name_patterns.h"

#include <algorithm>
#include <set>

#include "entrain/core/base/glob.h"

namespace entrain {
namespace {

// Whether the pattern fits the text, or its end from a dot on.
bool fits_end(std::string_view pattern, std::string_view text) {
  for (std::size_t begin = 0;; ++begin) {
    if (fits_glob(pattern, text.substr(begin))) {
      return true;
    }
    begin = text.find('.', begin);
    if (begin == std::string_view::npos || pattern.starts_with('*')) {
      return false;
    }
  }
}

bool fits_any(std::span<const std::string> patterns, std::string_view text) {
  return std::ranges::any_of(patterns,
                             [&](const std::string& pattern) { return fits_end(pattern, text); });
}

std::string pattern_text(const ParameterName& name) {
  return std::string(name.part) + "." + name.name;
}

}  // namespace

std::string projector_part(const EncoderSpec& encoder) {
  return encoder.name + "." + kProjectorPart;
}

std::vector<std::string> part_words(const ModelSpec& model) {
  std::set<std::string> words = {kLlmPart};
  for (const EncoderSpec& encoder : model.encoders) {
    words.insert({encoder.name, projector_part(encoder), kProjectorPart});
  }
  return {words.begin(), words.end()};
}

bool names_part(std::string_view word, std::string_view part) {
  return word == part ||
         (word == kProjectorPart && part.ends_with(std::string(".") + kProjectorPart));
}

bool names_parameter(std::span<const std::string> patterns, const ParameterName& name) {
  if (patterns.empty()) {
    return false;
  }
  const std::string text = pattern_text(name);
  return fits_any(patterns, text) || fits_any(patterns, text + std::string(name.kind)) ||
         std::ranges::any_of(patterns,
                             [&](const std::string& word) { return names_part(word, name.part); });
}

bool names_matrix(std::span<const std::string> patterns, const ParameterName& name) {
  return fits_any(patterns, pattern_text(name));
}

}  // namespace entrain
