// JSON and TOML documents as one tree, read with checked keys.
//
// Read first: ObjectReader. Every document Entrain reads goes through it, so that an unknown key, a
// missing key or a wrong type is reported with file and key path, e.g.
//   model.toml: vision.num_layer: unknown key, did you mean 'num_layers'?
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "entrain/core/base/errors.h"

namespace entrain {

// Keys keep their order, so that written files read like their documentation. Who looks into a
// document includes <nlohmann/json.hpp>: it is half of what a file costs to compile.
using Json = nlohmann::ordered_json;

// Throws  InvalidInput when the path does not exist or the text does not parse (with line and
//         column); SystemFailure when it cannot be read.
Json read_json_file(const std::filesystem::path& path);
Json parse_json(std::string_view text, const std::string& where);

// TOML as the same tree: tables → objects with their keys in file order, integers, floats,
// booleans, strings, arrays; dates are refused.
Json read_toml_file(const std::filesystem::path& path);
Json parse_toml(std::string_view text, const std::string& where);

// Sets `a.b.c` from command-line text: `true`, `12`, `1.5`, `[1, 2]` by TOML's rules, anything else
// is a string. Missing tables on the way are created.
//
// Throws  InvalidInput when `assignment` has no '=' or a part of the path is not a table.
void set_by_path(Json& document, std::string_view assignment);

// "file" + "key" → "file: key"; "file: table" + "key" → "file: table.key".
std::string key_path(const std::string& where, const std::string& key);

// Elements of a list, each with its own `where` ("file: path[3]").
// Throws  InvalidInput when `value` is not a list.
std::vector<std::pair<const Json*, std::string>> elements_of(const Json& value,
                                                             const std::string& where);

// Reads one JSON object key by key and refuses unknown keys.
class ObjectReader {
 public:
  // Requires  `object` outlives the reader.
  // Throws    InvalidInput when `object` is not an object. `where` names it in messages.
  ObjectReader(const Json& object, std::string where);

  bool has(const std::string& key);
  // The raw value, or nullptr when the key is absent or null. Marks the key as known.
  const Json* find(const std::string& key);
  const Json& at(const std::string& key);

  // T: bool, int, std::int64_t, std::uint64_t, double, std::string.
  template <class T>
  T required(const std::string& key);
  template <class T>
  T optional(const std::string& key, T fallback);

  ObjectReader object(const std::string& key);
  // A missing key gives an empty object.
  ObjectReader optional_object(const std::string& key);
  // Elements of an array with their own `where`; a missing key gives an empty list.
  std::vector<std::pair<const Json*, std::string>> array(const std::string& key);
  // Their values.
  template <class T>
  std::vector<T> list(const std::string& key);
  // Throws  InvalidInput unless the key `version` has this value.
  void check_version(int readable);

  // "file: path.to.key"
  [[nodiscard]] std::string where(const std::string& key) const;
  [[noreturn]] void fail(const std::string& key, const std::string& message) const;

  // Call last.
  // Throws  InvalidInput naming the first unknown key, with the closest known one.
  void finish() const;

 private:
  const Json* object_;
  std::string where_;
  std::vector<std::string> known_;
};

// Converts with range checks; `where` names the value in the message. T as in ObjectReader.
template <class T>
T value_as(const Json& value, const std::string& where);

template <class T>
T ObjectReader::required(const std::string& key) {
  return value_as<T>(at(key), where(key));
}

template <class T>
T ObjectReader::optional(const std::string& key, T fallback) {
  const Json* value = find(key);
  return value == nullptr ? fallback : value_as<T>(*value, where(key));
}

template <class T>
std::vector<T> ObjectReader::list(const std::string& key) {
  std::vector<T> values;
  for (const auto& [value, place] : array(key)) {
    values.push_back(value_as<T>(*value, place));
  }
  return values;
}

}  // namespace entrain
