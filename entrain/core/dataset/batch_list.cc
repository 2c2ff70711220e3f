#include "entrain/core/dataset/batch_list.h"

#include <unordered_map>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

std::string_view trimmed(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t begin = line.find_first_not_of(kSpace);
  return begin == std::string_view::npos
             ? std::string_view()
             : line.substr(begin, line.find_last_not_of(kSpace) + 1 - begin);
}

}  // namespace

std::vector<int> rows_of_batch_list(std::string_view text,
                                    const std::string& where,
                                    std::span<const std::string> ids) {
  std::unordered_map<std::string_view, int> row_of;
  for (const std::string& id : ids) {
    row_of.emplace(id, static_cast<int>(row_of.size()));
  }
  std::vector<int> rows;
  std::unordered_map<int, int> line_of;  // [row]
  int line = 0;
  for (const std::string_view whole : split(text, '\n')) {
    ++line;
    const std::string_view id = trimmed(whole);
    if (id.empty() || id.front() == '#') {
      continue;
    }
    const auto row = row_of.find(id);
    if (row == row_of.end()) {
      throw InvalidInput(fmt::format("{}, line {}: '{}' is not among the {} samples{}",
                                     where,
                                     line,
                                     id,
                                     ids.size(),
                                     close_match(id, ids)));
    }
    const auto [first, added] = line_of.emplace(row->second, line);
    if (!added) {
      throw InvalidInput(
          fmt::format("{}, line {}: '{}' is on line {} already; a batch holds a sample once",
                      where,
                      line,
                      id,
                      first->second));
    }
    rows.push_back(row->second);
  }
  if (rows.empty()) {
    throw InvalidInput(fmt::format("{}: no sample ids; one a line is needed", where));
  }
  return rows;
}

}  // namespace entrain
