// How a model's processor makes pixels: preprocessor_config.json.
#pragma once

#include <array>
#include <string>

#include "entrain/core/base/json.h"
#include "entrain/core/spec/model.h"

namespace entrain {

// Reads sizes, filter, mean and deviation of images into the vision encoder: Qwen2-VL's processor
// (sizes within limits), CLIP's (shortest edge, then the centre), those of one size, and those that
// cut tiles of it as `tiling` says: Idefics3's, GotOcr2's and LLaVA-NeXT's, whose canvases have to
// be the model's. InternVLProcessor, if it is the
// processor_class, cuts tiles whatever its crop_to_patches is, as in transformers. Keys that are
// absent keep what the family gave, or else have the default of the processor's class.
//
// Throws  InvalidInput naming key and value: patches or tiles that are not the model's, tiling of
//         another family, another filter than bicubic or Lanczos, a step left out, a key that
//         nobody has read.
void read_processor(const Json& document,
                    const std::string& where,
                    EncoderSpec& vision,
                    TilingSpec::Kind tiling = TilingSpec::Kind::kNone);

// Reads limits of pixels and the sampling of frames into vision.video, from
// video_preprocessor_config.json or, where a folder has none, from preprocessor_config.json, as in
// transformers. Keys that are absent keep what the family gave.
//
// Throws  InvalidInput naming key and value: patches that are not the model's, pixels made in
//         another way than those of images, cap_pixels_per_frame, a key that nobody has read.
void read_video_processor(const Json& document, const std::string& where, EncoderSpec& vision);

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
