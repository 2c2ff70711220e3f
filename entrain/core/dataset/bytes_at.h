// Bytes of a file that is read where it is looked at, not as a whole; the numbers in them, and what
// libraries of C read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
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

// The number in at most 7 bytes: with the lowest byte first, and with the highest first.
inline std::int64_t little_endian(std::string_view bytes) {
  std::int64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}
inline std::int64_t big_endian(std::string_view bytes) {
  std::int64_t value = 0;
  for (const char byte : bytes) {
    value = value << 8 | static_cast<unsigned char>(byte);
  }
  return value;
}

// What a library of C reads through its callbacks. Errors of `bytes` wait in `failure`, since they
// must not pass through C.
struct ByteStream {
  const BytesAt& bytes;
  std::int64_t size;
  std::int64_t position = 0;
  std::exception_ptr failure = nullptr;

  // Copies the next `wanted` bytes, or those that are left. Returns how many; 0 after an error.
  std::int64_t read(void* target, std::int64_t wanted) {
    const std::int64_t count = std::clamp<std::int64_t>(wanted, 0, size - position);
    try {
      bytes(position, count).copy(static_cast<char*>(target), static_cast<std::size_t>(count));
    } catch (...) {
      failure = std::current_exception();
      return 0;
    }
    position += count;
    return count;
  }
  // As fseek() has it, but never outside. Returns the new position.
  std::int64_t seek(std::int64_t offset, int whence) {
    const std::int64_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? position : size;
    return position = std::clamp<std::int64_t>(from + offset, 0, size);
  }
  void rethrow_failure() const {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
};

}  // namespace entrain
