// Small text helpers for messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace entrain {

// Joins printable values: concat("stage ", 3) == "stage 3". For engine units, which cannot use fmt
// (torch ships another version of it).
template <class... Args>
std::string concat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

// "a, b, c"
std::string join(std::span<const std::string> values, std::string_view separator = ", ");

// ", did you mean 'x'?" for the closest of `allowed` within an edit distance of a third of the
// length, else empty.
std::string close_match(std::string_view given, std::span<const std::string> allowed);

// close_match(), or where that is empty "; allowed: a, b, c".
std::string suggestion(std::string_view given, std::span<const std::string> allowed);

// Throws  InvalidInput "where: unknown what 'given'" with a suggestion, unless `given` is allowed.
void check_name(std::string_view where,
                std::string_view what,
                std::string_view given,
                std::span<const std::string> allowed);

// "1.23 s", "45.6 ms", "7.8 us", "9 ns"
std::string format_duration(std::chrono::nanoseconds duration);
// "1.5 GiB"
std::string format_bytes(std::int64_t bytes);
// "12,345"
std::string format_count(std::int64_t count);
// "1 lane", "12,345 lanes", "2 batches"; `one` is a regular English noun, or words that end in one.
std::string counted(std::int64_t count, std::string_view one);

// Exact split at every separator: split("a;b", ';') == {"a", "b"}; split("", ';') == {}.
std::vector<std::string_view> split(std::string_view text, char separator);

}  // namespace entrain
