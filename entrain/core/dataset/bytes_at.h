// Bytes of a file that is read where it is looked at, not as a whole.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace entrain {

// Bytes [offset, offset + size) of it, which must lie inside; valid until the next call.
using BytesAt = std::function<std::string_view(std::int64_t offset, std::int64_t size)>;

// Of a file that is in memory, which must stay.
inline BytesAt bytes_in_memory(std::string_view bytes) {
  return [bytes](std::int64_t offset, std::int64_t size) {
    return bytes.substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
  };
}

}  // namespace entrain
