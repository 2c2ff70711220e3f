// Sizes of the media of a sample.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/dataset/found_sample.h"
#include "entrain/core/dataset/sample_source.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// From the header, plus whether the medium is complete; with `verify` by decoding it too.
//
// Throws  InvalidInput naming it: whatever image_size() and audio_info() refuse, with `verify`
// whatever
//         the decoders refuse.
ImageSize measure_image(const MediaBytes& image, bool verify);
// Of all videos of a sample. One that is frames has the length of these at the sample's `fps`; one
// that is a file is measured by measure_video_file().
//
// Throws  also InvalidInput for frames of two sizes, or without `fps`.
std::vector<VideoSize> measure_videos(const FoundSample& sample, bool verify);
double measure_clip(const MediaBytes& clip, bool verify);  // in seconds

// Whether a sample is what an index says of it: decodes every image, frame, clip and video of the
// sample, which was read from `file`.
//
// Throws  InvalidInput naming sample and file: a medium that is damaged, or of another size than
//         `sample` has.
void verify_sample(const SampleSizes& sample, const RawSample& raw, const std::string& file);

}  // namespace entrain
