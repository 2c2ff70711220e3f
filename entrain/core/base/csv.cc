#include "entrain/core/base/csv.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain {

CsvReader::CsvReader(std::string_view content, std::string where)
    : content_(content), where_(std::move(where)) {
  static constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (content_.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    position_ = kByteOrderMark.size();
  }
  if (!read_row()) {
    throw InvalidInput(fmt::format("{}: the file is empty; a header line is needed", where_));
  }
  columns_.assign(fields_.begin(), fields_.begin() + static_cast<std::ptrdiff_t>(num_fields_));
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].empty()) {
      fail_row(fmt::format("column {} has no name", i + 1));
    }
    if (column(columns_[i]) != static_cast<int>(i)) {
      fail_row(fmt::format("column '{}' occurs twice", columns_[i]));
    }
  }
}

int CsvReader::column(std::string_view name) const {
  const auto found = std::find(columns_.begin(), columns_.end(), name);
  return found == columns_.end() ? -1 : static_cast<int>(found - columns_.begin());
}

bool CsvReader::next() {
  if (!read_row()) {
    return false;
  }
  if (num_fields_ != columns_.size()) {
    fail_row(fmt::format("{} fields; the header has {}", num_fields_, columns_.size()));
  }
  return true;
}

bool CsvReader::read_row() {
  while (position_ < content_.size() &&
         (content_[position_] == '\n' || content_.substr(position_, 2) == "\r\n")) {
    position_ += content_[position_] == '\n' ? 1 : 2;
    ++line_;
  }
  if (position_ >= content_.size()) {
    return false;
  }
  row_line_ = line_;
  num_fields_ = 0;
  while (true) {
    if (num_fields_ == fields_.size()) {
      fields_.emplace_back();
    }
    std::string& field = fields_[num_fields_++];
    if (position_ < content_.size() && content_[position_] == '"') {
      read_quoted(field);
    } else {
      const std::size_t end = std::min(content_.find_first_of(",\n", position_), content_.size());
      std::size_t size = end - position_;
      if (end < content_.size() && content_[end] == '\n' && size > 0 && content_[end - 1] == '\r') {
        --size;
      }
      field.assign(content_.substr(position_, size));
      position_ = end;
    }
    if (position_ >= content_.size()) {
      return true;
    }
    if (content_[position_++] == '\n') {
      ++line_;
      return true;
    }
  }
}

// Leaves position_ at the comma or line end (or the content's end) after the closing quote.
void CsvReader::read_quoted(std::string& field) {
  field.clear();
  ++position_;
  while (true) {
    const std::size_t quote = content_.find('"', position_);
    if (quote == std::string_view::npos) {
      fail_row("a quoted field is not closed");
    }
    const std::string_view piece = content_.substr(position_, quote - position_);
    field.append(piece);
    line_ += std::count(piece.begin(), piece.end(), '\n');
    position_ = quote + 1;
    if (position_ >= content_.size() || content_[position_] != '"') {
      break;
    }
    field.push_back('"');
    ++position_;
  }
  if (content_.substr(position_, 2) == "\r\n") {
    ++position_;
  }
  if (position_ < content_.size() && content_[position_] != ',' && content_[position_] != '\n') {
    fail_row("text follows the closing quote of a field");
  }
}

void CsvReader::fail(int column, const std::string& message) const {
  fail_row(fmt::format("column '{}': {}", columns_[static_cast<std::size_t>(column)], message));
}

void CsvReader::fail_row(const std::string& message) const {
  throw InvalidInput(fmt::format("{}:{}: {}", where_, row_line_, message));
}

void append_csv_row(std::string& out, std::span<const std::string> fields) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) {
      out.push_back(',');
    }
    if (fields[i].find_first_of(",\"\r\n") == std::string::npos) {
      out.append(fields[i]);
      continue;
    }
    out.push_back('"');
    for (const char character : fields[i]) {
      out.append(character == '"' ? 2 : 1, character);
    }
    out.push_back('"');
  }
  out.push_back('\n');
}

}  // namespace entrain
