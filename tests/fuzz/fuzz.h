// What every fuzz target shares. A target is one file NAME_fuzz.cc with LLVMFuzzerTestOneInput();
// its seeds lie in corpus/NAME.
//
// Contract of every parser: whatever the bytes, it returns a result or throws InvalidInput or
// SystemFailure, within seconds and without asking for memory that the input does not back. Any
// other exception ends the target, as a crash does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>

#include <sys/mman.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"

namespace entrain::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Says why the bytes were refused where ENTRAIN_FUZZ_SHOW is set; for looking at one input.
inline void show(const std::exception& refusal) {
  static const bool wanted = std::getenv("ENTRAIN_FUZZ_SHOW") != nullptr;
  if (wanted) {
    std::fprintf(stderr, "refused: %s\n", refusal.what());
  }
}

// Calls `parse`; a refusal of the two allowed kinds is as good as a result.
template <class Parse>
void expect_result_or_refusal(const Parse& parse) {
  try {
    parse();
  } catch (const InvalidInput& refusal) {
    show(refusal);
  } catch (const SystemFailure& refusal) {
    show(refusal);
  }
}

// The bytes with `begin` in place of their first ones, so that every input is of a format.
inline std::string beginning_with(std::string_view begin, std::string_view bytes) {
  return std::string(begin) + std::string(bytes.substr(std::min(begin.size(), bytes.size())));
}

// Ends the target as a finding.
inline void expect(bool holds, const char* claim) {
  if (!holds) {
    std::fprintf(stderr, "broken promise: %s\n", claim);
    std::abort();
  }
}

// Bytes of which no range outside may be read.
class WatchedBytes {
 public:
  explicit WatchedBytes(std::string_view bytes) : bytes_(bytes) {}
  [[nodiscard]] auto reader() const {
    return [bytes = bytes_](std::int64_t offset, std::int64_t count) {
      const auto size = static_cast<std::int64_t>(bytes.size());
      expect(offset >= 0 && count >= 0 && count <= size - offset, "a range lies inside");
      return bytes.substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(count));
    };
  }

 private:
  std::string_view bytes_;
};

// Bytes as a file that lies in memory, for parsers that open paths.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    expect(descriptor_ >= 0 && ::write(descriptor_, bytes.data(), bytes.size()) ==
                                   static_cast<ssize_t>(bytes.size()),
           "a file in memory");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  [[nodiscard]] std::filesystem::path path() const {
    return "/proc/self/fd/" + std::to_string(descriptor_);
  }

 private:
  int descriptor_;
};

}  // namespace entrain::fuzz
