// Sizes of number formats by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace entrain {

// Bytes of one number: float32, bfloat16, float16 or float64.
// Throws    InvalidInput for another name; the message begins with `where`.
std::int64_t dtype_bytes(std::string_view dtype, const std::string& where);

}  // namespace entrain
