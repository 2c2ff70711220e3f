#include "entrain/core/base/digest.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

std::string text_of(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

std::string digest_of(std::string_view bytes) {
  return text_of(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string short_digest(std::string_view digest) {
  return std::string(digest.substr(0, 8));
}

std::string digest_of_file(const std::filesystem::path& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  std::string buffer(1U << 20U, '\0');
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    XXH3_128bits_update(&state, buffer.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file.eof()) {
    throw SystemFailure(fmt::format("cannot read '{}': {}", path.string(), std::strerror(errno)));
  }
  return text_of(XXH3_128bits_digest(&state));
}

std::uint64_t hash_of(std::string_view name) {
  return XXH3_64bits(name.data(), name.size());
}

}  // namespace entrain
