// Files of video, read by PyAV in a Python process beside this one: MP4, MOV, WebM, MKV, AVI, GIF.
//
// Read first: measure_video_file(), then VideoDecoder. Which file is meant is said by its content.
// Frames are numbered from 0 in the order in which they are shown; docs/data.md says which count.
// The process decodes one video at a time, in one thread, and holds one frame of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "entrain/core/dataset/found_sample.h"
#include "entrain/core/dataset/image.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// One of both is not empty.
struct VideoFile {
  std::string path;   // absolute
  std::string bytes;  // of one that is not a file of its own
};

// Reads the bytes of one that is not on disk by itself.
VideoFile video_file_of(const MediaBytes& file);

// Its length is that of its frames at the stream's mean rate; its size as it is shown.
//
// Frames  are counted by the times of all packets, and the first 16 and the last one are decoded;
//         with `verify` all. Where packets do not say how many frames there are, all are decoded.
//
// Throws  InvalidInput naming `where`: whatever cannot be read, is not there to its end or has no
//         video; no PyAV, with the way out. SystemFailure where Python does not start or fails.
// Cost    reads the file once.
VideoSize measure_video_file(const VideoFile& file, bool verify, const std::string& where);

// Decodes frames of a file. Rising numbers continue where the last call ended, if no other video of
// this thread was read in between.
class VideoDecoder {
 public:
  // `num_frames`: that the index says.
  // Requires  `file` outlives the decoder.
  VideoDecoder(const VideoFile& file, std::int64_t num_frames, std::string where);

  // Upright, in the order of `indices`, which are at least 0.
  //
  // Throws  as measure_video_file(); also InvalidInput where the file has another number of frames,
  //         or a frame cannot be decoded.
  std::vector<DecodedImage> frames(std::span<const std::int64_t> indices);

 private:
  const VideoFile& file_;
  std::int64_t num_frames_;
  std::string where_;
  std::uint64_t id_;  // of this decoder, among all
};

}  // namespace entrain
