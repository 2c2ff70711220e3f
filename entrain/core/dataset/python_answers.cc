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
// [kind] as entrain/python/entrain/tables.py has them.
constexpr std::array<const char*, MediaRefs::num_kinds()> kTableMedia = {
    "images", "videos", "audio"};

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

const Json& list_in(const Json& answer, const char* key, const std::string& where) {
  const Json& list = field(answer, key, where);
  if (!list.is_array()) {
    refuse_answer(answer, where);
  }
  return list;
}

// "PATH", or [begin, size] of the answer's bytes, or [begin, size, true] of the table's file.
TableMedium table_medium(const Json& entry,
                         std::int64_t bytes,
                         std::int64_t file_bytes,
                         const std::string& where) {
  TableMedium medium;
  if (entry.is_string()) {
    medium.path = text_in(entry, where);
    return medium;
  }
  if (!entry.is_array() || entry.size() < 2 || entry.size() > 3) {
    refuse_answer(entry, where);
  }
  medium.in_file = entry.size() == 3;
  const std::int64_t end = medium.in_file ? file_bytes : bytes;
  const std::int64_t begin = whole_number(entry[0], 0, end, where);
  medium.begin = static_cast<std::size_t>(begin);
  medium.size = static_cast<std::size_t>(whole_number(entry[1], 0, end - begin, where));
  return medium;
}

TableRow table_row(const Json& line,
                   std::int64_t bytes,
                   std::int64_t file_bytes,
                   const std::string& where) {
  TableRow row;
  if (const auto error = line.find("error"); error != line.end()) {
    row.error = text_in(*error, where);
    return row;
  }
  row.text = text_in(field(line, "json", where), where);
  const Json& columns = field(line, "media", where);
  if (!columns.is_object()) {
    refuse_answer(line, where);
  }
  for (std::size_t kind = 0; kind < row.media.size(); ++kind) {
    if (!columns.contains(kTableMedia.at(kind))) {
      continue;
    }
    for (const Json& entry : list_in(columns, kTableMedia.at(kind), where)) {
      row.media.at(kind).push_back(table_medium(entry, bytes, file_bytes, where));
    }
  }
  return row;
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
  const Json answer = process.read_line(where);
  if (const auto error = answer.find("error"); error != answer.end()) {
    const std::string why = fmt::format("{}: {}", where, text_in(*error, where));
    if (answer.contains("unfit")) {
      throw UnfitColumns(why);
    }
    throw InvalidInput(why);
  }
  TableSize table;
  table.rows = count_in(answer, "rows", 0, where);
  table.largest_bytes = count_in(answer, "largest", 0, where);
  for (const Json& column : list_in(answer, "unread", where)) {
    table.unread.push_back(text_in(column, where));
  }
  return table;
}

TableRows read_table_rows(PythonProcess& process,
                          std::int64_t most,
                          std::int64_t file_bytes,
                          const std::string& where) {
  const Json head = process.read_line(where);
  const auto count =
      static_cast<std::size_t>(whole_number(field(head, "rows", where), 1, most, where));
  TableRows answer;
  if (const auto error = head.find("error"); error != head.end()) {
    TableRow damaged;
    damaged.error = text_in(*error, where);
    answer.rows.assign(count, damaged);
    return answer;
  }
  const std::int64_t bytes = count_in(head, "bytes", 0, where);
  while (answer.rows.size() < count) {
    answer.rows.push_back(table_row(process.read_line(where), bytes, file_bytes, where));
  }
  answer.bytes = process.read_bytes(bytes, where);
  return answer;
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
