// Sizes of the media of a sample.
#pragma once

#include <vector>

#include "entrain/core/dataset/found_sample.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// From the header, plus whether the medium is complete; with `verify` by decoding it too.
//
// Throws  InvalidInput naming it: whatever image_size() and audio_info() refuse, with `verify` whatever
//         the decoders refuse.
ImageSize measure_image(const MediaBytes& image, bool verify);
// Frames of one size; its length is that of the frames at `fps` a second.
//
// Throws  also InvalidInput for frames of two sizes.
VideoSize measure_video(const std::vector<MediaBytes>& frames, double fps, bool verify);
double measure_clip(const MediaBytes& clip, bool verify);  // in seconds

}  // namespace entrain
