#include "entrain/core/base/text.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

// Insertions, deletions, substitutions and swaps of neighbours that make one text the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);  // of the row before the last
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitute});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string join(std::span<const std::string> values, std::string_view separator) {
  return fmt::format("{}", fmt::join(values.begin(), values.end(), separator));
}

std::string close_match(std::string_view given, std::span<const std::string> allowed) {
  const std::string* closest = nullptr;
  std::size_t least = std::max<std::size_t>(1, given.size() / 3) + 1;
  for (const std::string& candidate : allowed) {
    const std::size_t distance = edit_distance(given, candidate);
    if (distance < least) {
      least = distance;
      closest = &candidate;
    }
  }
  return closest != nullptr ? fmt::format(", did you mean '{}'?", *closest) : std::string();
}

std::string suggestion(std::string_view given, std::span<const std::string> allowed) {
  const std::string match = close_match(given, allowed);
  return match.empty() && !allowed.empty() ? fmt::format("; allowed: {}", join(allowed)) : match;
}

void check_name(std::string_view where,
                std::string_view what,
                std::string_view given,
                std::span<const std::string> allowed) {
  if (std::find(allowed.begin(), allowed.end(), given) == allowed.end()) {
    throw InvalidInput(
        fmt::format("{}: unknown {} '{}'{}", where, what, given, suggestion(given, allowed)));
  }
}

std::string format_duration(std::chrono::nanoseconds duration) {
  const auto count = static_cast<double>(duration.count());
  if (std::abs(count) >= 1e9) {
    return fmt::format("{:.3g} s", count * 1e-9);
  }
  if (std::abs(count) >= 1e6) {
    return fmt::format("{:.3g} ms", count * 1e-6);
  }
  if (std::abs(count) >= 1e3) {
    return fmt::format("{:.3g} us", count * 1e-3);
  }
  return fmt::format("{} ns", duration.count());
}

std::string format_bytes(std::int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::abs(value) >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t first = digits[0] == '-' ? 1 : 0;
  for (std::size_t end = digits.size(); end > first + 3; end -= 3) {
    digits.insert(end - 3, ",");
  }
  return digits;
}

std::string counted(std::int64_t count, std::string_view one) {
  const bool hisses = one.ends_with("tch") || one.ends_with('s') || one.ends_with('x');
  return concat(format_count(count), " ", one, count == 1 ? "" : hisses ? "es" : "s");
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  if (text.empty()) {
    return parts;
  }
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    if (end == std::string_view::npos) {
      parts.push_back(text.substr(begin));
      return parts;
    }
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

}  // namespace entrain
