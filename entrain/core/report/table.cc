#include "entrain/core/report/table.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

constexpr std::size_t kGap = 2;  // between columns

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool begins_like_number(std::string_view cell) {
  if (cell.starts_with('-') || cell.starts_with('+')) {
    cell.remove_prefix(1);
  }
  return !cell.empty() && is_digit(cell.front());
}

// Every byte of UTF-8 that does not continue a character.
bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
}

// At most `width` characters: the middle of what is longer is left out.
std::string cut(const std::string& cell, std::size_t width) {
  const std::size_t columns = columns_of(cell);
  if (columns <= width) {
    return cell;
  }
  const std::size_t head = (width - 1) / 2;
  const std::size_t tail = width - 1 - head;
  return cell.substr(0, begin_of_column(cell, head)) + "…" +
         cell.substr(begin_of_column(cell, columns - tail));
}

}  // namespace

struct Table::Column {
  std::size_t width = 0;
  bool right = false;
  std::vector<std::string> cells;  // the header's first
};

Table::Table(std::vector<std::string> header, std::size_t labels)
    : header_(std::move(header)), labels_(std::min(labels, header_.size())) {}

void Table::add_row(std::vector<std::string> cells) {
  ENTRAIN_INVARIANT(
      cells.size() == header_.size(),
      fmt::format("a row of {} cells in a table of {} columns", cells.size(), header_.size()));
  rows_.push_back(std::move(cells));
}

// All columns, with cells cut so that the labels and any single column fit side by side.
std::vector<Table::Column> Table::columns(bool cut_cells) const {
  const std::size_t of_label = labels_ > 1 ? 26 : 36;
  const std::size_t of_others = kMostColumns - labels_ * (of_label + kGap);
  std::vector<Column> result;
  for (std::size_t index = 0; index < header_.size(); ++index) {
    const std::size_t most = index < labels_ ? of_label : of_others;
    result.push_back(column_of(index, cut_cells ? most : std::string::npos));
  }
  return result;
}

Table::Column Table::column_of(std::size_t index, std::size_t most) const {
  Column column;
  column.cells.push_back(cut(header_[index], most));
  bool numbers = false;
  bool others = false;
  for (const std::vector<std::string>& row : rows_) {
    const std::string& cell = column.cells.emplace_back(cut(row[index], most));
    const bool number = begins_like_number(cell);
    numbers = numbers || number;
    others = others || !(number || cell.empty() || cell == "-");
  }
  for (const std::string& cell : column.cells) {
    column.width = std::max(column.width, columns_of(cell));
  }
  column.right = numbers && !others;
  return column;
}

std::string Table::to_text() const {
  const auto width_of_columns = [](const std::vector<Column>& shown) {
    std::size_t width = 0;
    for (const Column& column : shown) {
      width += column.width + (width > 0 ? kGap : 0);
    }
    return width;
  };
  std::vector<Column> all = columns(false);
  if (width_of_columns(all) > kMostColumns) {
    all = columns(true);
  }
  const auto labels_end = all.begin() + static_cast<std::ptrdiff_t>(labels_);
  const std::vector<Column> labels(all.begin(), labels_end);
  std::string text;
  std::vector<Column> shown = labels;
  for (auto column = labels_end; column != all.end(); ++column) {
    if (shown.size() > labels_ && width_of_columns(shown) + kGap + column->width > kMostColumns) {
      text += text_of(shown) + "\n";
      shown = labels;
    }
    shown.push_back(*column);
  }
  return text + text_of(shown);
}

std::string Table::text_of(const std::vector<Column>& columns) {
  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (const Column& column : columns) {
      const std::string cell = cell_of(column);
      const std::string padding(column.width - columns_of(cell), ' ');
      line += &column == &columns.front() ? "" : std::string(kGap, ' ');
      line += column.right ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([](const Column& column) { return column.cells.front(); });
  add_line([](const Column& column) { return std::string(column.width, '-'); });
  for (std::size_t row = 1; row < columns.front().cells.size(); ++row) {
    add_line([row](const Column& column) { return column.cells[row]; });
  }
  return text;
}

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

std::size_t begin_of_column(std::string_view text, std::size_t column) {
  std::size_t byte = 0;
  for (std::size_t begun = 0; byte < text.size(); ++byte) {
    if (begins_character(text[byte]) && begun++ == column) {
      break;
    }
  }
  return byte;
}

std::string wrap(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    std::string margin;
    while (columns_of(line) + margin.size() > kMostColumns) {
      const std::size_t bytes =
          begin_of_column(line, kMostColumns - std::min(kMostColumns, margin.size()));
      std::size_t at = line.rfind(' ', bytes);
      if (at == std::string_view::npos || at <= indent) {
        at = line.find(' ', bytes);  // one word is wider by itself
      }
      if (at == std::string_view::npos) {
        break;
      }
      result += margin + std::string(line.substr(0, at)) + "\n";
      line.remove_prefix(std::min(line.find_first_not_of(' ', at), line.size()));
      margin.assign(indent + 2, ' ');
    }
    result += margin + std::string(line) + "\n";
  }
  return result;
}

std::string format_fixed(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

std::string format_seconds(double seconds) {
  return format_duration(std::chrono::nanoseconds(std::llround(1e9 * seconds)));
}

std::string format_range(std::span<const int> values) {
  if (values.empty()) {
    return "-";
  }
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return *least == *most ? fmt::format("{}", *least) : fmt::format("{}-{}", *least, *most);
}

}  // namespace entrain
