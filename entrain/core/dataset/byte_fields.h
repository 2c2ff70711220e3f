// Values one after another as bytes, in this machine's byte order: numbers as in memory, texts and
// lists behind their length.
//
// Read first: BytesOut appends values, BytesIn sets them by calls of the same names, so that one
// function lists the fields of a struct and serves both directions:
//
//   template <class Bytes>
//   void fields(Bytes& bytes, FieldsOf<Bytes, TokenRange> range) {
//     bytes.number(range.begin);
//     bytes.number(range.end);
//   }
//
// A format is a struct with the type `TextLength` of the number in front of a text, and with
// `too_short()`, which throws where bytes end within a value.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace entrain {

// A struct that `Bytes` reads or writes.
template <class Bytes, class Struct>
using FieldsOf = std::conditional_t<Bytes::kReads, Struct&, const Struct&>;

template <class Format>
class BytesOut {
 public:
  static constexpr bool kReads = false;

  // As a number of the type `Stored`.
  template <class Stored, class Number>
  void number_as(Number value) {
    static_assert(std::is_arithmetic_v<Stored>);
    const auto stored = static_cast<Stored>(value);
    bytes_.append(reinterpret_cast<const char*>(&stored), sizeof(stored));
  }
  template <class Number>
  void number(Number value) {
    number_as<Number>(value);
  }
  void flag(bool value) { number_as<std::uint8_t>(value); }
  void text(std::string_view value) {
    number_as<typename Format::TextLength>(value.size());
    bytes_ += value;
  }
  // Calls `each` with every element.
  template <class List, class Each>
  void list(const List& values, const Each& each) {
    number_as<std::uint64_t>(values.size());
    for (const auto& value : values) {
      each(value);
    }
  }

  std::string take() { return std::move(bytes_); }

 protected:
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

template <class Format>
class BytesIn {
 public:
  static constexpr bool kReads = true;

  explicit BytesIn(std::string_view bytes) : rest_(bytes) {}

  template <class Stored, class Number>
  void number_as(Number& value) {
    Stored stored{};
    std::memcpy(&stored, take(sizeof(stored)).data(), sizeof(stored));
    value = static_cast<Number>(stored);
  }
  template <class Number>
  void number(Number& value) {
    number_as<Number>(value);
  }
  void flag(bool& value) { number_as<std::uint8_t>(value); }
  void text(std::string& value) {
    typename Format::TextLength length = 0;
    number(length);
    value = take(length);
  }
  // Appends the elements, each of which `each` sets.
  template <class List, class Each>
  void list(List& values, const Each& each) {
    std::uint64_t left = 0;
    for (number(left); left > 0; --left) {
      each(values.emplace_back());
    }
  }

  // What has not been read yet.
  [[nodiscard]] std::string_view rest() const { return rest_; }

 protected:
  std::string_view take(std::size_t size) {
    if (size > rest_.size()) {
      Format::too_short();
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

 private:
  std::string_view rest_;
};

}  // namespace entrain
