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

// As people name them. "image" stands for video too: a vision encoder takes both.
inline constexpr std::array<std::string_view, 2> kMediaNames = {"audio", "image"};

// sample_work() counts such media as nothing, so that what is planned, trained and judged is the
// text beside them. Nobody may find that out by chance.
//
// `where` names the samples, `option` how a person lets them pass: "--ignore-modality audio" is
// {"--ignore-modality ", ""}.
struct MediaOption {
  std::string_view before;
  std::string_view after;
};
inline constexpr MediaOption kIgnoreOption = {"--ignore-modality ", ""};
inline constexpr MediaOption kIgnoreKey = {"data.ignore_modality = [\"", "\"]"};

// Returns  a line for each medium of `ignored` that samples bring: how many, of how many samples.
// Throws   InvalidInput with the count and the first ids of samples whose media the model has no
//          encoder for, unless `ignored` names them; when `ignored` names a medium that the model
//          has an encoder for, or none of kMediaNames.
std::vector<std::string> check_media(const ModelSpec& model,
                                     std::span<const SampleSizes> samples,
                                     const std::vector<std::string>& ignored,
                                     const std::string& where,
                                     const MediaOption& option);

}  // namespace entrain
