#include "entrain/core/base/base64.h"

#include <cstdint>

namespace entrain {
namespace {

// -1: no character of base64.
int value_of(char c) {
  return c >= 'A' && c <= 'Z'   ? c - 'A'
         : c >= 'a' && c <= 'z' ? c - 'a' + 26
         : c >= '0' && c <= '9' ? c - '0' + 52
         : c == '+'             ? 62
         : c == '/'             ? 63
                                : -1;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  std::uint32_t held = 0;
  int bits = 0;
  bool padded = false;
  for (const char character : text) {
    if (kSpaces.find(character) != std::string_view::npos) {
      continue;
    }
    const int value = value_of(character);
    padded = padded || character == '=';
    if (padded ? character != '=' : value < 0) {
      return std::nullopt;
    }
    if (padded) {
      continue;
    }
    held = (held << 6U) | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes.push_back(static_cast<char>((held >> static_cast<unsigned>(bits)) & 0xFFU));
    }
  }
  return bytes;
}

}  // namespace entrain
