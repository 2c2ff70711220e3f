#include "entrain/core/base/json.h"

#include <algorithm>
#include <limits>
#include <sstream>

#include <fmt/format.h>
#define TOML_EXCEPTIONS 1
// Damaged text breaks some of the library's own assertions on the way to its error message.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

Json from_toml(const toml::node& node, const std::string& where) {
  if (const toml::table* table = node.as_table()) {
    // toml++ sorts keys by name; the file's order is that of their positions.
    std::vector<std::pair<const toml::key*, const toml::node*>> entries;
    for (const auto& [key, value] : *table) {
      entries.emplace_back(&key, &value);
    }
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      return a.first->source().begin < b.first->source().begin;
    });
    Json object = Json::object();
    for (const auto& [key, value] : entries) {
      const std::string name(key->str());
      object[name] = from_toml(*value, where + "." + name);
    }
    return object;
  }
  if (const toml::array* array = node.as_array()) {
    Json list = Json::array();
    for (const toml::node& value : *array) {
      list.push_back(from_toml(value, where));
    }
    return list;
  }
  if (const auto* value = node.as_boolean()) {
    return value->get();
  }
  if (const auto* value = node.as_integer()) {
    return value->get();
  }
  if (const auto* value = node.as_floating_point()) {
    return value->get();
  }
  if (const auto* value = node.as_string()) {
    return value->get();
  }
  throw InvalidInput(fmt::format("{}: dates and times are not allowed here", where));
}

const char* type_name(const Json& value) {
  if (value.is_number_float()) {
    return "a number with a fraction";
  }
  if (value.is_number()) {
    return "an integer";
  }
  if (value.is_object()) {
    return "a table";
  }
  if (value.is_array()) {
    return "a list";
  }
  if (value.is_boolean()) {
    return "a boolean";
  }
  return value.is_string() ? "a string" : "null";
}

[[noreturn]] void fail_type(const Json& value, const std::string& where, const char* wanted) {
  throw InvalidInput(
      fmt::format("{}: {} is {}, but {} is needed", where, value.dump(), type_name(value), wanted));
}

// Writing, comparing and copying a tree recurse, so a hostile depth would exhaust the stack.
void check_depth(std::string_view text, const std::string& where) {
  constexpr int kMaxDepth = 200;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char character = text[i];
    if (character == '"') {
      quoted = !quoted;
    } else if (quoted) {
      i += character == '\\' ? 1 : 0;
    } else if (character == '[' || character == '{') {
      if (++depth > kMaxDepth) {
        throw InvalidInput(
            fmt::format("{}: not valid JSON: lists and tables nest deeper than {} at byte {}",
                        where,
                        kMaxDepth,
                        i));
      }
    } else if (character == ']' || character == '}') {
      --depth;
    }
  }
}

// The end of a TOML string whose opening quote stands at `begin`: behind its closing quotes, or the
// text's end where it is not closed.
std::size_t end_of_toml_string(std::string_view text, std::size_t begin) {
  const std::string_view quotes = text.substr(begin, 3);
  const bool multi_line = quotes == "\"\"\"" || quotes == "'''";
  const std::string_view closing = quotes.substr(0, multi_line ? 3 : 1);
  for (std::size_t i = begin + closing.size(); i < text.size(); ++i) {
    if (text[begin] == '"' && text[i] == '\\') {
      ++i;
    } else if (text.substr(i, closing.size()) == closing) {
      i += closing.size();
      // Up to two quotes in front of the closing three are the string's own.
      for (int own = 0; multi_line && own < 2 && i < text.size() && text[i] == text[begin]; ++own) {
        ++i;
      }
      return i;
    } else if (text[i] == '\n' && !multi_line) {
      return i;
    }
  }
  return text.size();
}

// TOML takes other characters than ASCII in strings and comments only; the library's tables for
// them elsewhere are not safe to ask. The position of the first elsewhere, npos where there is
// none.
std::size_t find_foreign_character(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  std::size_t i = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  while (i < text.size()) {
    if (text[i] == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (text[i] == '"' || text[i] == '\'') {
      i = end_of_toml_string(text, i);
    } else if ((static_cast<unsigned char>(text[i]) & 0x80U) != 0) {
      return i;
    } else {
      ++i;
    }
  }
  return std::string_view::npos;
}

// Writing a document that holds text which is not UTF-8 would fail, far from where it came from.
bool is_utf8(std::string_view text) {
  try {
    Json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
  return true;
}

template <class T>
T integer_as(const Json& value, const std::string& where) {
  if (!value.is_number_integer()) {
    fail_type(value, where, "an integer");
  }
  const bool fits = value.is_number_unsigned() ? std::in_range<T>(value.get<std::uint64_t>())
                                               : std::in_range<T>(value.get<std::int64_t>());
  if (!fits) {
    throw InvalidInput(fmt::format("{}: {} is out of range [{}, {}]",
                                   where,
                                   value.dump(),
                                   std::numeric_limits<T>::min(),
                                   std::numeric_limits<T>::max()));
  }
  return value.get<T>();
}

}  // namespace

Json read_json_file(const std::filesystem::path& path) {
  return parse_json(read_file(path), path.string());
}

Json parse_json(std::string_view text, const std::string& where) {
  check_depth(text, where);
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& error) {  // of syntax, or a number out of range
    throw InvalidInput(fmt::format("{}: not valid JSON: {}", where, error.what()));
  }
}

Json read_toml_file(const std::filesystem::path& path) {
  return parse_toml(read_file(path), path.string());
}

Json parse_toml(std::string_view text, const std::string& where) {
  if (const std::size_t at = find_foreign_character(text); at != std::string_view::npos) {
    throw InvalidInput(fmt::format(
        "{}:{}: not valid TOML: a character that is not ASCII outside of quotes and comments",
        where,
        1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n')));
  }
  try {
    return from_toml(toml::parse(text), where);
  } catch (const toml::parse_error& error) {
    throw InvalidInput(fmt::format("{}:{}:{}: not valid TOML: {}",
                                   where,
                                   error.source().begin.line,
                                   error.source().begin.column,
                                   error.description()));
  }
}

void set_by_path(Json& document, std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    throw InvalidInput(
        fmt::format("--set '{}': write it as path.to.key=value", std::string(assignment)));
  }
  if (!is_utf8(assignment)) {
    throw InvalidInput(fmt::format("--set '{}': not UTF-8 text", std::string(assignment)));
  }
  const std::string text(assignment.substr(equals + 1));
  Json value = text;
  try {
    const bool parses = find_foreign_character(text) == std::string::npos;
    const toml::table parsed = parses ? toml::parse("value = " + text) : toml::table();
    if (parsed.size() == 1) {  // text with line breaks could smuggle in other keys
      value = from_toml(*parsed.get("value"), "--set");
    }
  } catch (const toml::parse_error&) {
    // Not a TOML value, so it is meant as a string.
  }
  Json* node = &document;
  const auto path = split(assignment.substr(0, equals), '.');
  if (std::find(path.begin(), path.end(), std::string_view()) != path.end()) {
    throw InvalidInput(
        fmt::format("--set '{}': the path has an empty part", std::string(assignment)));
  }
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (!node->is_object()) {
      throw InvalidInput(fmt::format(
          "--set '{}': '{}' is a value, not a table", std::string(assignment), path[i - 1]));
    }
    node = &(*node)[std::string(path[i])];
    if (i + 1 < path.size() && node->is_null()) {
      *node = Json::object();
    }
  }
  *node = std::move(value);
}

std::string key_path(const std::string& where, const std::string& key) {
  return where + (where.find(": ") == std::string::npos ? ": " : ".") + key;
}

std::vector<std::pair<const Json*, std::string>> elements_of(const Json& value,
                                                             const std::string& where) {
  if (!value.is_array()) {
    fail_type(value, where, "a list");
  }
  std::vector<std::pair<const Json*, std::string>> elements;
  for (std::size_t i = 0; i < value.size(); ++i) {
    elements.emplace_back(&value[i], fmt::format("{}[{}]", where, i));
  }
  return elements;
}

ObjectReader::ObjectReader(const Json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  if (!object.is_object()) {
    fail_type(object, where_, "a table");
  }
}

bool ObjectReader::has(const std::string& key) {
  return find(key) != nullptr;
}

const Json* ObjectReader::find(const std::string& key) {
  known_.push_back(key);
  const auto entry = object_->find(key);
  return entry == object_->end() || entry->is_null() ? nullptr : &*entry;
}

const Json& ObjectReader::at(const std::string& key) {
  const Json* value = find(key);
  if (value == nullptr) {
    throw InvalidInput(fmt::format("{}: missing", where(key)));
  }
  return *value;
}

ObjectReader ObjectReader::object(const std::string& key) {
  return {at(key), where(key)};
}

std::vector<std::pair<const Json*, std::string>> ObjectReader::array(const std::string& key) {
  const Json* value = find(key);
  if (value == nullptr) {
    return {};
  }
  return elements_of(*value, where(key));
}

std::string ObjectReader::where(const std::string& key) const {
  return key_path(where_, key);
}

void ObjectReader::fail(const std::string& key, const std::string& message) const {
  throw InvalidInput(fmt::format("{}: {}", where(key), message));
}

void ObjectReader::finish() const {
  for (const auto& [key, value] : object_->items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      throw InvalidInput(fmt::format("{}: unknown key{}", where(key), suggestion(key, known_)));
    }
  }
}

template <>
bool value_as<bool>(const Json& value, const std::string& where) {
  if (!value.is_boolean()) {
    fail_type(value, where, "a boolean");
  }
  return value.get<bool>();
}

template <>
int value_as<int>(const Json& value, const std::string& where) {
  return integer_as<int>(value, where);
}

template <>
std::int64_t value_as<std::int64_t>(const Json& value, const std::string& where) {
  return integer_as<std::int64_t>(value, where);
}

template <>
std::uint64_t value_as<std::uint64_t>(const Json& value, const std::string& where) {
  return integer_as<std::uint64_t>(value, where);
}

template <>
double value_as<double>(const Json& value, const std::string& where) {
  if (!value.is_number()) {
    fail_type(value, where, "a number");
  }
  return value.get<double>();
}

template <>
std::string value_as<std::string>(const Json& value, const std::string& where) {
  if (!value.is_string()) {
    fail_type(value, where, "a string");
  }
  return value.get<std::string>();
}

}  // namespace entrain
