// Aligned text tables for the output of commands.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrain {

// Maximum width of a command's output.
inline constexpr std::size_t kMostColumns = 100;

// A header and rows of equally many cells. Columns of numbers (cells that begin like one: "12",
// "-3.5 ms", "1.20x", and "-" for none) are right-aligned, others left.
class Table {
 public:
  // The first `labels` columns identify a row.
  explicit Table(std::vector<std::string> header, std::size_t labels = 1);

  // Requires  as many cells as the header has.
  void add_row(std::vector<std::string> cells);

  // One line per row after header and rule, each ending with a newline; two spaces between
  // columns, none at line ends. Cells are UTF-8. A table wider than kMostColumns is split into
  // several tables, each with the labels; longer cells are cut in their middle
  // ("…").
  [[nodiscard]] std::string to_text() const;

 private:
  struct Column;
  [[nodiscard]] std::vector<Column> columns(bool cut_cells) const;
  [[nodiscard]] Column column_of(std::size_t index, std::size_t most) const;
  static std::string text_of(const std::vector<Column>& columns);

  std::vector<std::string> header_;
  std::size_t labels_;
  std::vector<std::vector<std::string>> rows_;
};

// Characters of UTF-8 text, each of which takes a column.
std::size_t columns_of(std::string_view text);
// The byte at which the character of this column begins, counted from 0; text.size() if the text
// ends before it.
std::size_t begin_of_column(std::string_view text, std::size_t column);

// Breaks lines wider than kMostColumns at blanks; continued lines are indented to the second
// column.
std::string wrap(std::string_view text);

// format_fixed(1.256, 2) == "1.26"; "-" for values that are not finite.
std::string format_fixed(double value, int digits);
// format_duration() of seconds.
std::string format_seconds(double seconds);
// "28-32", or "32" where all of `values` are; "-" of none.
std::string format_range(std::span<const int> values);

}  // namespace entrain
