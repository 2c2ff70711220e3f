#include "entrain/cli/checked_options.h"

#include <charconv>
#include <limits>

#include "entrain/core/base/text.h"

namespace entrain::cli {
namespace {

// The whole text as a number; `error` is out_of_range if no T can hold it.
template <class T>
std::errc read_number(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && read != end ? std::errc::invalid_argument : error;
}

// A text of hundreds of digits is not repeated.
std::string unreadable(const std::string& given,
                       std::errc error,
                       const char* wanted,
                       const std::string& range) {
  constexpr std::size_t kShown = 24;
  const std::string shown = given.size() <= kShown ? given : given.substr(0, kShown) + "…";
  return error == std::errc::result_out_of_range
             ? concat(shown, " is out of range; allowed: ", range)
             : concat("'", shown, "' is not ", wanted, "; allowed: ", range);
}

CLI::Validator checked(const std::string& range, std::function<std::string(std::string&)> check) {
  CLI::Validator validator(std::move(check), range);
  validator.non_modifying(false);
  return validator;
}

}  // namespace

CLI::Validator whole(std::int64_t least, std::int64_t most, const std::string& hint) {
  const WholeRange range{least, most};
  return checked(to_string(range), [range, hint](std::string& given) -> std::string {
    std::int64_t value = 0;
    const std::errc error = read_number(given, value);
    if (error != std::errc()) {
      return unreadable(given, error, "a whole number", to_string(range));
    }
    const std::string objection = range_error(value, range);
    given = std::to_string(value);  // not octal where it begins with 0
    return value > range.most ? objection + hint : objection;
  });
}

CLI::Validator number(const NumberRange& range) {
  return checked(to_string(range), [range](std::string& given) -> std::string {
    double value = 0;
    const std::errc error = read_number(given, value);
    return error == std::errc() ? range_error(value, range)
                                : unreadable(given, error, "a number", to_string(range));
  });
}

CLI::Validator seed_number() {
  return whole(0, std::numeric_limits<std::int64_t>::max());
}

void add_force(CLI::App& command, bool& force) {
  command.add_flag("--force",
                   force,
                   "replace outputs that are read-only or of another kind; never an input or "
                   "a checkpoint");
}

}  // namespace entrain::cli
