// Sizes of the members of a sample in a shard.
#pragma once

#include <vector>

#include "entrain/core/dataset/tar.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// From the header, plus whether the member is complete; with `verify` by decoding it too.
//
// Throws  InvalidInput naming archive, offset and member: whatever image_size() and audio_info()
//         refuse, with `verify` whatever the decoders refuse.
ImageSize measure_image(TarReader& tar, const TarMember& image, bool verify);
// Frames of one size; its length is that of the frames at `fps` a second.
//
// Throws  also InvalidInput for frames of two sizes.
VideoSize measure_video(TarReader& tar,
                        const std::vector<TarMember>& frames,
                        double fps,
                        bool verify);
double measure_clip(TarReader& tar, const TarMember& clip, bool verify);  // in seconds

}  // namespace entrain
