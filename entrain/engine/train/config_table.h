// One table of the run file, read and written by the same function.
//
// Read first: ConfigTable.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrain/core/base/json.h"
#include "entrain/core/base/ranges.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {

// The kind of range that a number of this type has.
template <class T>
using RangeOf = std::conditional_t<std::is_floating_point_v<T>, NumberRange, WholeRange>;

// One table of the run file, either read or written, so that a function over it names every key
// once. Reading keeps the field's value where the key is absent, and throws InvalidInput for a
// value that is not allowed; writing checks nothing.
class ConfigTable {
 public:
  ConfigTable() = default;  // writes
  ConfigTable(const Json& document, const std::string& where)
      : reader_(ObjectReader(document, where)) {}
  explicit ConfigTable(ObjectReader reader) : reader_(std::move(reader)) {}

  // Null if the table is written.
  ObjectReader* reader() { return reader_.has_value() ? &*reader_ : nullptr; }
  Json& written() { return written_; }

  template <class T>
  void key(const char* name, T& value) {
    if (reader_.has_value()) {
      value = reader_->optional<T>(name, value);
    } else {
      written_[name] = value;
    }
  }
  // Not written where it has no value.
  template <class T>
  void key(const char* name, std::optional<T>& value) {
    if (reader_.has_value()) {
      if (const Json* given = reader_->find(name)) {
        value = value_as<T>(*given, reader_->where(name));
      }
    } else if (value.has_value()) {
      written_[name] = *value;
    }
  }
  template <class T>
  void key(const char* name, std::vector<T>& values) {
    if (reader_.has_value()) {
      values = reader_->list<T>(name);
    } else {
      written_[name] = values;
    }
  }

  template <class T>
  void required(const char* name, T& value) {
    if (reader_.has_value()) {
      reader_->at(name);
    }
    key(name, value);
  }

  // `note` follows the allowed range.
  template <class T>
  requires std::is_arithmetic_v<T>
  void key(const char* name, T& value, const RangeOf<T>& range, const char* note = "") {
    key(name, value);
    check_range(name, value, range, note);
  }
  template <class T>
  void key(const char* name, std::optional<T>& value, const RangeOf<T>& range) {
    key(name, value);
    if (value.has_value()) {
      check_range(name, *value, range);
    }
  }
  void key(const char* name, std::string& value, std::span<const std::string_view> allowed) {
    key(name, value);
    check_name(name, value, allowed);
  }

  // A table within this one.
  template <class Config>
  void table(const char* name, void (*keys)(ConfigTable&, Config&), Config& config) {
    if (!reader_.has_value()) {
      ConfigTable part;
      keys(part, config);
      written_[name] = part.written();
      return;
    }
    ConfigTable part(reader_->optional_object(name));
    keys(part, config);
    part.reader()->finish();
  }

  template <class T>
  void check_range(const char* name,
                   const T& value,
                   const RangeOf<T>& range,
                   const char* note = "") {
    const std::string error = range_error(value, range);
    if (reader_.has_value() && !error.empty()) {
      reader_->fail(name, error + note);
    }
  }
  void check_name(const char* name,
                  const std::string& given,
                  std::span<const std::string_view> allowed) {
    if (reader_.has_value() && std::ranges::find(allowed, given) == allowed.end()) {
      const std::vector<std::string> names(allowed.begin(), allowed.end());
      reader_->fail(name, concat("'", given, "' given; allowed: ", join(names)));
    }
  }
  void require(bool holds, const char* name, const char* allowed) {
    if (reader_.has_value() && !holds) {
      reader_->fail(name, concat("out of range; allowed: ", allowed));
    }
  }

 private:
  std::optional<ObjectReader> reader_;  // none: the table is written
  Json written_ = Json::object();
};

}  // namespace entrain::engine
