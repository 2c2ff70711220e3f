#include "entrain/core/base/base64.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace entrain {
namespace {

constexpr std::int8_t kForeign = -1;
constexpr std::int8_t kSpace = -2;
constexpr std::int8_t kPadding = -3;

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> values() {
  std::array<std::int8_t, 256> result{};
  result.fill(kForeign);
  for (std::size_t i = 0; i < kDigits.size(); ++i) {
    result[static_cast<unsigned char>(kDigits[i])] = static_cast<std::int8_t>(i);
  }
  for (const char space : {' ', '\t', '\r', '\n'}) {
    result[static_cast<unsigned char>(space)] = kSpace;
  }
  result['='] = kPadding;
  return result;
}

constexpr std::array<std::int8_t, 256> kValues = values();

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  std::string bytes(text.size() / 4 * 3 + 3, '\0');
  std::size_t size = 0;
  std::uint32_t held = 0;
  unsigned bits = 0;
  bool padded = false;
  for (const char character : text) {
    const std::int8_t value = kValues[static_cast<unsigned char>(character)];
    if (value < 0 || padded) {
      if (value == kSpace) {
        continue;
      }
      if (value != kPadding) {
        return std::nullopt;
      }
      padded = true;
      continue;
    }
    held = (held << 6U) | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes[size++] = static_cast<char>((held >> bits) & 0xFFU);
    }
  }
  bytes.resize(size);
  return bytes;
}

std::string encode_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t held = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      held = held << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (unsigned shift = 18; shift < 24; shift -= 6) {
      text.push_back(kDigits[held >> shift & 63U]);
    }
    for (std::size_t k = bytes.size() - i; k < 3; ++k) {
      text[text.size() - 3 + k] = '=';
    }
  }
  return text;
}

}  // namespace entrain
