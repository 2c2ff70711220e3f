// Media of samples that a model has no encoder for.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// Names in messages. "image" includes video: a vision encoder takes both.
inline constexpr std::array<std::string_view, 2> kMediaNames = {"audio", "image"};

// sample_work() ignores such media, so that planning, training and evaluation use only the
// text beside them. That must never happen silently.
//
// `where` names the samples, `option` the flag that allows them: "--ignore-modality audio" is
// {"--ignore-modality ", ""}.
struct MediaOption {
  std::string_view before;
  std::string_view after;
};
inline constexpr MediaOption kIgnoreOption = {"--ignore-modality ", ""};
inline constexpr MediaOption kIgnoreKey = {"data.ignore_modality = [\"", "\"]"};

// Returns  a line for each medium of `ignored` that samples contain: how many, of how many samples.
// Throws   InvalidInput with the count and the first ids of samples whose media have no encoder in
//          the model, unless `ignored` names them; if `ignored` names a medium that the model
//          has an encoder for, or one not in kMediaNames.
std::vector<std::string> check_media(const ModelSpec& model,
                                     std::span<const SampleSizes> samples,
                                     const std::vector<std::string>& ignored,
                                     const std::string& where,
                                     const MediaOption& option);

}  // namespace entrain
