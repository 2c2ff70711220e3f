// Bytes written as base64.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace entrain {

// Padding may be missing, and line breaks and spaces are passed over. nullopt for other characters
// and for anything but padding behind padding.
std::optional<std::string> decode_base64(std::string_view text);

// With padding, on one line.
std::string encode_base64(std::string_view bytes);

}  // namespace entrain
