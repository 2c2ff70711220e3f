// Comma-separated tables: a header line, then rows of as many fields, quoted where needed (RFC
// 4180). Ours, since of the distribution's parsers libcsv says at no line where a table is wrong,
// and Fast C++ CSV Parser takes no line ends within quotes and needs the number of columns when
// compiled.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrain {

// Reads a table row by row. Line ends may be \n or \r\n; empty lines are skipped.
class CsvReader {
 public:
  // Reads the header line. `content` must outlive the reader; `where` names the file in messages.
  //
  // Throws  InvalidInput when the header is missing, or a column's name is empty or occurs twice.
  CsvReader(std::string_view content, std::string where);

  [[nodiscard]] const std::vector<std::string>& columns() const { return columns_; }
  // Position of a column, -1 when absent.
  [[nodiscard]] int column(std::string_view name) const;

  // Moves to the next row; false at the end.
  // Throws  InvalidInput when the row has more or fewer fields than columns, or a quote is not
  // closed.
  bool next();
  // Field of the current row, unquoted; valid until the next call of next().
  [[nodiscard]] const std::string& field(int column) const {
    return fields_[static_cast<std::size_t>(column)];
  }
  // Line on which the current row begins, counted from 1.
  [[nodiscard]] std::int64_t line() const { return row_line_; }

  // Throws  InvalidInput "<where>:<line>: column '<name>': <message>".
  [[noreturn]] void fail(int column, const std::string& message) const;

 private:
  bool read_row();
  void read_quoted(std::string& field);
  [[noreturn]] void fail_row(const std::string& message) const;

  std::string_view content_;
  std::string where_;
  std::size_t position_ = 0;
  std::int64_t line_ = 1;  // of position_
  std::int64_t row_line_ = 0;
  std::vector<std::string> columns_;
  std::vector<std::string> fields_;
  std::size_t num_fields_ = 0;
};

// Appends one row with its line end; fields with commas, quotes or line ends are quoted.
void append_csv_row(std::string& out, std::span<const std::string> fields);

}  // namespace entrain
