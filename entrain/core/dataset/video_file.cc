#include "entrain/core/dataset/video_file.h"

#include <atomic>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/python_process.h"
#include "entrain/core/dataset/python_answers.h"

namespace entrain {
namespace {

struct VideoProcess {
  PythonReader reader{"entrain.videos", "decodes video"};
  std::uint64_t opened = 0;  // whose video is open there; 0: nobody's
};

VideoProcess& process_of_this_thread() {
  thread_local VideoProcess process;
  return process;
}

std::uint64_t new_video_id() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

void send(PythonProcess& process, const Json& request, const std::string& where) {
  process.write(request.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n", where);
}

// Calls `talk(process)` with the video open. After an error it is opened anew.
template <class Talk>
auto with_video(std::uint64_t id,
                const VideoFile& file,
                const std::string& where,
                const Talk& talk) {
  VideoProcess& videos = process_of_this_thread();
  return videos.reader.with_process([&](PythonProcess& process) {
    if (std::exchange(videos.opened, 0) != id) {
      send(process,
           {{"open", file.path.empty() ? Json(file.bytes.size()) : Json(file.path)}},
           where);
      process.write(file.bytes, where);
      process.read_answer(where);
    }
    auto result = talk(process);
    videos.opened = id;
    return result;
  });
}

}  // namespace

VideoFile video_file_of(const MediaBytes& file) {
  if (file.path.empty()) {
    return {"", file.content()};
  }
  return {std::filesystem::absolute(file.path).string(), ""};
}

VideoSize measure_video_file(const VideoFile& file, bool verify, const std::string& where) {
  return with_video(new_video_id(), file, where, [&](PythonProcess& process) {
    send(process, {{"measure", verify}}, where);
    return read_video_size(process, where);
  });
}

VideoDecoder::VideoDecoder(const VideoFile& file, std::int64_t num_frames, std::string where)
    : file_(file), num_frames_(num_frames), where_(std::move(where)), id_(new_video_id()) {}

std::vector<DecodedImage> VideoDecoder::frames(std::span<const std::int64_t> indices) {
  return with_video(id_, file_, where_, [&](PythonProcess& process) {
    send(process, {{"frames", indices}, {"of", num_frames_}}, where_);
    std::vector<DecodedImage> result;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      result.push_back(read_video_frame(process, where_));
    }
    return result;
  });
}

}  // namespace entrain
