#include "entrain/core/base/ranges.h"

#include <cmath>

#include <fmt/format.h>

#include "entrain/core/base/text.h"

namespace entrain {
namespace {

std::string printed(double value) {
  constexpr double kLongest = 1e15;  // of what is printed digit by digit
  return std::floor(value) == value && std::abs(value) < kLongest
             ? format_count(static_cast<std::int64_t>(value))
             : fmt::format("{}", value);
}

std::string message(const std::string& value, const std::string& allowed) {
  return fmt::format("{} is out of range; allowed: {}", value, allowed);
}

}  // namespace

std::string to_string(const WholeRange& range) {
  return fmt::format("{} to {}", format_count(range.least), format_count(range.most));
}

std::string to_string(const NumberRange& range) {
  return fmt::format("{}{}{}{}{}",
                     range.above_least ? "above " : "",
                     printed(range.least),
                     range.above_least ? ", up to " : " to ",
                     range.below_most ? "below " : "",
                     printed(range.most));
}

std::string range_error(std::int64_t value, const WholeRange& range) {
  return value >= range.least && value <= range.most
             ? std::string()
             : message(format_count(value), to_string(range));
}

std::string range_error(double value, const NumberRange& range) {
  const bool within = (range.above_least ? value > range.least : value >= range.least) &&
                      (range.below_most ? value < range.most : value <= range.most);
  return within ? std::string() : message(printed(value), to_string(range));
}

}  // namespace entrain
