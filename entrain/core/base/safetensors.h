// The header of a safetensors file: its tensors and their positions.
//
// Layout of a file: 8 bytes little-endian header length, a JSON header
// {"name": {"dtype", "shape", "data_offsets": [begin, end]}, …}, then the tensors' bytes without
// gaps. Nothing in it is trusted; readers allocate only for what was checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace entrain {

inline constexpr std::size_t kSafetensorsLengthBytes = 8;

struct SafetensorsEntry {
  std::string name;
  std::string dtype;                // F32, F64, F16, BF16, I64, I32 or U8
  std::vector<std::int64_t> shape;  // sides >= 0
  std::uint64_t begin = 0;          // bytes from the start of the data
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        // by offset
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

// The header's length, from a file's first bytes.
//
// Throws  InvalidInput naming `where` when the file is too short for it or it exceeds 100 MB, the
//         format's own limit.
std::uint64_t safetensors_header_bytes(std::string_view first_bytes,
                                       std::uint64_t file_bytes,
                                       const std::string& where);

// What a file says of its tensors.
struct SafetensorsFile {
  std::string header;            // its JSON text as it is, padding included
  std::uint64_t data_begin = 0;  // bytes from the file's start
  SafetensorsHeader tensors;
};

// Reads and checks the header of a file of so many bytes that is open at its beginning.
//
// Throws  InvalidInput naming `where` as the functions above and below; SystemFailure when it
// cannot
//         be read.
SafetensorsFile read_safetensors_header(std::istream& file,
                                        std::uint64_t file_bytes,
                                        const std::string& where);

// Ensures  the tensors fill [0, data_bytes) without gap or overlap, each with the bytes of its
//          shape.
// Throws   InvalidInput naming `where` and the tensor otherwise.
SafetensorsHeader parse_safetensors_header(std::string_view json,
                                           std::uint64_t data_bytes,
                                           const std::string& where);

}  // namespace entrain
