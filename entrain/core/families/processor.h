// How a model's processor makes pixels: preprocessor_config.json.
#pragma once

#include <array>
#include <string>

#include "entrain/core/base/json.h"
#include "entrain/core/spec/model.h"

namespace entrain {

// Reads sizes, mean and deviation of images into the vision encoder: Qwen2-VL's processor (sizes
// within limits), CLIP's (shortest edge, then the centre) and those of one size. Keys that are
// absent keep what the family gave.
//
// Throws  InvalidInput naming key and value: patches that are not the model's, tiling, another
//         filter than bicubic, a step left out, a key that nobody has read.
void read_processor(const Json& document, const std::string& where, EncoderSpec& vision);

// Requires of a processor of audio clips that it is Whisper's, with the encoder's windows and
// bands: the mel frames that engine/data/log_mel.h makes.
//
// Throws  InvalidInput naming key and value: whatever would make other frames, a key that nobody
//         has read.
void read_audio_processor(const Json& document, const std::string& where, const EncoderSpec& audio);

// CLIP's channel means and deviations, which Qwen2-VL has too.
inline constexpr std::array<double, 3> kClipMean = {0.48145466, 0.4578275, 0.40821073};
inline constexpr std::array<double, 3> kClipDeviation = {0.26862954, 0.26130258, 0.27577711};

}  // namespace entrain
