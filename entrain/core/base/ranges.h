// Ranges of numbers given by users, and their text in messages.
#pragma once

#include <cstdint>
#include <string>

namespace entrain {

struct WholeRange {
  std::int64_t least = 0;
  std::int64_t most = 0;
};

struct NumberRange {
  double least = 0;
  double most = 0;
  bool above_least = false;  // `least` itself is not allowed
  bool below_most = false;   // likewise
};

// "1 to 1,000,000"
std::string to_string(const WholeRange& range);
// "0 to 1", "above 0, up to 86,400", "0 to below 1"
std::string to_string(const NumberRange& range);

// "0 is out of range; allowed: 1 to 1,000,000"; "" if the value is in range. NaN never is.
std::string range_error(std::int64_t value, const WholeRange& range);
std::string range_error(double value, const NumberRange& range);

}  // namespace entrain
