// Digests of plain data: 128-bit XXH3 as 32 lower-case hexadecimal digits. They detect difference,
// not malice.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace entrain {

std::string digest_of(std::string_view bytes);

// 64-bit hash of a name, for random streams: stable across machines and versions.
std::uint64_t hash_of(std::string_view name);

}  // namespace entrain
