// Aligned text tables for the output of commands.
#pragma once

#include <string>
#include <vector>

namespace entrain {

// A header and rows of equally many cells. Columns of numbers (cells that begin like one: "12",
// "-3.5 ms", "1.20x", and "-" for none) stand right, others left.
class Table {
 public:
  explicit Table(std::vector<std::string> header);

  // Requires  as many cells as the header has.
  void add_row(std::vector<std::string> cells);

  // One line per row behind header and rule, each ending with a newline; two spaces between
  // columns, none at line ends. Cells are UTF-8.
  [[nodiscard]] std::string to_text() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

// format_fixed(1.256, 2) == "1.26"; "-" for values that are not finite.
std::string format_fixed(double value, int digits);

}  // namespace entrain
