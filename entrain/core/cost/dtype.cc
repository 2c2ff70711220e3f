#include "entrain/core/cost/dtype.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain {

std::optional<std::int64_t> known_dtype_bytes(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, std::int64_t>, 4> kSizes = {
      {{"float32", 4}, {"bfloat16", 2}, {"float16", 2}, {"float64", 8}}};
  for (const auto& [name, bytes] : kSizes) {
    if (dtype == name) {
      return bytes;
    }
  }
  return std::nullopt;
}

std::int64_t dtype_bytes(std::string_view dtype, const std::string& where) {
  if (const auto bytes = known_dtype_bytes(dtype)) {
    return *bytes;
  }
  throw InvalidInput(fmt::format(
      "{}: dtype '{}' given; allowed: float32, bfloat16, float16, float64", where, dtype));
}

}  // namespace entrain
