// Which parameters the patterns of `freeze` and `[lora]` name.
//
// Read first: ParameterName.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/spec/model.h"

namespace entrain {

// A parameter as patterns see it. A pattern is a glob (glob.h) that fits the whole text
// "part.name", or its end from any dot on: of "llm.model.layers.3.mlp.up_proj" the patterns
// "up_proj", "mlp.up_proj", "model.layers.[0-3].mlp.*" and "llm.*_proj" are all that matrix.
struct ParameterName {
  std::string_view part;  // "vision", "vision.projector", "llm": what words of `freeze` name
  std::string name;       // without its kind
  std::string_view kind;  // ".weight", ".bias", …
};

inline constexpr const char* kLlmPart = "llm";
inline constexpr const char* kProjectorPart = "projector";  // those of all encoders
std::string projector_part(const EncoderSpec& encoder);     // "NAME.projector"

// All words that mean a part of the model, sorted.
std::vector<std::string> part_words(const ModelSpec& model);

// Whether a word means the part, rather than being a pattern.
bool names_part(std::string_view word, std::string_view part);

// Whether one of the patterns fits the name, with its kind or without, or is a word for its part.
bool names_parameter(std::span<const std::string> patterns, const ParameterName& name);

// Whether one of the patterns fits the name without its kind.
bool names_matrix(std::span<const std::string> patterns, const ParameterName& name);

}  // namespace entrain
