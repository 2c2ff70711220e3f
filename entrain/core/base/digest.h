// Digests of plain data: 128-bit XXH3 as 32 lower-case hexadecimal digits. They detect accidental
// changes, not malicious ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace entrain {

std::string digest_of(std::string_view bytes);

// The first eight digits of one, for messages.
std::string short_digest(std::string_view digest);

// digest_of() for a file's bytes on disk, in constant memory.
//
// Throws  SystemFailure with the path when it cannot be read.
std::string digest_of_file(const std::filesystem::path& path);

// 64-bit hash of a name, for random streams: stable across machines and versions.
std::uint64_t hash_of(std::string_view name);

}  // namespace entrain
