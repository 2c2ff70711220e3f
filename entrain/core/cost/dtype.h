// Sizes of number formats by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace entrain {

// Bytes of one number: float32, bfloat16, float16 or float64. Nothing for another name.
std::optional<std::int64_t> known_dtype_bytes(std::string_view dtype);

// Throws    InvalidInput for another name; the message begins with `where`.
std::int64_t dtype_bytes(std::string_view dtype, const std::string& where);

}  // namespace entrain
