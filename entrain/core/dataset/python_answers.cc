#include "entrain/core/dataset/python_answers.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"

namespace entrain {
namespace {

constexpr std::int64_t kMostCounted = std::numeric_limits<std::int64_t>::max();
constexpr double kMostFps = 1000;

[[noreturn]] void refuse_answer(const Json& answer, const std::string& what) {
  constexpr std::size_t kShown = 200;
  throw SystemFailure(
      fmt::format("{}: a worker answered '{}'",
                  what,
                  answer.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, kShown)));
}

const Json& field(const Json& answer, const char* key, const std::string& where) {
  const auto found = answer.find(key);
  if (found == answer.end()) {
    refuse_answer(answer, where);
  }
  return *found;
}

std::int64_t whole_number(const Json& value,
                          std::int64_t least,
                          std::int64_t most,
                          const std::string& where) {
  // Numbers above kMostCounted are kept unsigned.
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && std::cmp_greater(value.get<std::uint64_t>(), kMostCounted))) {
    refuse_answer(value, where);
  }
  const auto number = value.get<std::int64_t>();
  if (number < least || number > most) {
    refuse_answer(value, where);
  }
  return number;
}

std::int64_t count_in(const Json& answer,
                      const char* key,
                      std::int64_t least,
                      const std::string& where) {
  return whole_number(field(answer, key, where), least, kMostCounted, where);
}

const std::string& text_in(const Json& value, const std::string& where) {
  if (!value.is_string()) {
    refuse_answer(value, where);
  }
  return value.get_ref<const std::string&>();
}

ImageSize size_in(const Json& answer, const std::string& where) {
  constexpr std::int64_t kMostSide = kMaxImagePixels;
  const std::int64_t width = whole_number(field(answer, "width", where), 1, kMostSide, where);
  const std::int64_t height = whole_number(field(answer, "height", where), 1, kMostSide, where);
  if (width > kMaxImagePixels / height) {
    refuse_answer(answer, where);
  }
  return {static_cast<int>(width), static_cast<int>(height)};
}

}  // namespace

TableSize read_table_size(PythonProcess& process, const std::string& where) {
  const Json answer = process.read_answer(where);
  return {count_in(answer, "rows", 0, where), count_in(answer, "largest", 0, where)};
}

TableRow read_table_row(PythonProcess& process, const std::string& where) {
  const Json answer = process.read_answer(where);
  TableRow row;
  row.text = text_in(field(answer, "json", where), where);
  const Json& columns = field(answer, "media", where);
  if (!columns.is_object()) {
    refuse_answer(answer, where);
  }
  for (const auto& [name, list] : {std::pair("images", &row.media.images),
                                   std::pair("videos", &row.media.videos),
                                   std::pair("audio", &row.media.audio)}) {
    const auto column = columns.find(name);
    if (column == columns.end()) {
      continue;
    }
    if (!column->is_array()) {
      refuse_answer(answer, where);
    }
    for (const Json& entry : *column) {
      list->push_back(
          entry.is_string()
              ? MediaRef{text_in(entry, where), ""}
              : MediaRef{"",
                         process.read_bytes(whole_number(entry, 0, kMostCounted, where), where)});
    }
  }
  return row;
}

VideoSize read_video_size(PythonProcess& process, const std::string& where) {
  const Json answer = process.read_answer(where);
  const Json& rate = field(answer, "fps", where);
  const double fps = rate.is_number() ? rate.get<double>() : 0;
  VideoSize video;
  video.frames = count_in(answer, "frames", 1, where);
  video.seconds = static_cast<double>(*video.frames) / fps;
  video.size = size_in(answer, where);
  if (!(fps > 0) || fps > kMostFps) {
    refuse_answer(answer, where);
  }
  return video;
}

DecodedImage read_video_frame(PythonProcess& process, const std::string& where) {
  DecodedImage frame;
  frame.size = size_in(process.read_answer(where), where);
  const std::size_t bytes =
      3 * static_cast<std::size_t>(frame.size.width) * static_cast<std::size_t>(frame.size.height);
  // A claim alone takes no memory.
  constexpr std::size_t kBlock = std::size_t{4} << 20U;
  while (frame.rgb.size() < bytes) {
    const std::size_t begin = frame.rgb.size();
    frame.rgb.resize(std::min(bytes, begin + kBlock));
    process.read_into(std::span(frame.rgb).subspan(begin), where);
  }
  return frame;
}

}  // namespace entrain
