#include "entrain/core/report/table.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool begins_like_number(std::string_view cell) {
  if (cell.starts_with('-') || cell.starts_with('+')) {
    cell.remove_prefix(1);
  }
  return !cell.empty() && is_digit(cell.front());
}

// Code points: every byte that does not continue one.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

}  // namespace

Table::Table(std::vector<std::string> header) : header_(std::move(header)) {}

void Table::add_row(std::vector<std::string> cells) {
  ENTRAIN_INVARIANT(
      cells.size() == header_.size(),
      fmt::format("a row of {} cells in a table of {} columns", cells.size(), header_.size()));
  rows_.push_back(std::move(cells));
}

std::string Table::to_text() const {
  std::vector<std::size_t> widths;
  std::vector<bool> right;
  for (std::size_t column = 0; column < header_.size(); ++column) {
    std::size_t width = width_of(header_[column]);
    bool numbers = false;
    bool others = false;
    for (const std::vector<std::string>& row : rows_) {
      const std::string& cell = row[column];
      width = std::max(width, width_of(cell));
      const bool number = begins_like_number(cell);
      numbers = numbers || number;
      others = others || !(number || cell.empty() || cell == "-");
    }
    widths.push_back(width);
    right.push_back(numbers && !others);
  }
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t column = 0; column < cells.size(); ++column) {
      const std::string padding(widths[column] - width_of(cells[column]), ' ');
      line += column > 0 ? "  " : "";
      line += right[column] ? padding + cells[column] : cells[column] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line(header_);
  std::vector<std::string> rule;
  for (const std::size_t width : widths) {
    rule.emplace_back(width, '-');
  }
  add_line(rule);
  for (const std::vector<std::string>& row : rows_) {
    add_line(row);
  }
  return text;
}

std::string format_fixed(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

}  // namespace entrain
