#include "entrain/core/base/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/json.h"

namespace entrain {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

std::int64_t element_bytes(const std::string& dtype, const std::string& where) {
  constexpr std::array<std::pair<std::string_view, std::int64_t>, 7> kDtypes = {
      {{"F32", 4}, {"F64", 8}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"U8", 1}}};
  std::string allowed;
  for (const auto& [known, bytes] : kDtypes) {
    if (known == dtype) {
      return bytes;
    }
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", known);
  }
  throw InvalidInput(fmt::format("{}: dtype '{}' given, allowed: {}", where, dtype, allowed));
}

// One entry, checked in itself.
SafetensorsEntry read_entry(const std::string& name,
                            const Json& document,
                            std::uint64_t data_bytes,
                            const std::string& where) {
  ObjectReader reader(document, where);
  SafetensorsEntry entry;
  entry.name = name;
  entry.dtype = reader.required<std::string>("dtype");
  // Empty sides count as one here, since strides are products of all other sides.
  std::int64_t extent = element_bytes(entry.dtype, where);
  bool empty = false;
  reader.at("shape");
  for (const auto& [value, value_where] : reader.array("shape")) {
    const auto side = value_as<std::int64_t>(*value, value_where);
    if (side < 0 || __builtin_mul_overflow(extent, std::max<std::int64_t>(side, 1), &extent)) {
      throw InvalidInput(fmt::format("{}: impossible tensor side {}", value_where, side));
    }
    empty = empty || side == 0;
    entry.shape.push_back(side);
  }
  const std::uint64_t bytes = empty ? 0 : static_cast<std::uint64_t>(extent);
  reader.at("data_offsets");
  const auto offsets = reader.array("data_offsets");
  if (offsets.size() != 2) {
    throw InvalidInput(fmt::format(
        "{}.data_offsets: {} numbers given, must be [begin, end]", where, offsets.size()));
  }
  entry.begin = value_as<std::uint64_t>(*offsets[0].first, offsets[0].second);
  entry.end = value_as<std::uint64_t>(*offsets[1].first, offsets[1].second);
  reader.finish();
  if (entry.begin > entry.end || entry.end > data_bytes || entry.end - entry.begin != bytes) {
    throw InvalidInput(
        fmt::format("{}: data_offsets [{}, {}] must hold the {} bytes of its shape within the "
                    "file's {} bytes of data",
                    where,
                    entry.begin,
                    entry.end,
                    bytes,
                    data_bytes));
  }
  return entry;
}

void check_cover(const std::vector<SafetensorsEntry>& entries,
                 std::uint64_t data_bytes,
                 const std::string& where) {
  std::uint64_t filled = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != filled) {
      throw InvalidInput(
          fmt::format("{}: {}: data starts at byte {}, must start at {} where the tensor before it "
                      "ends",
                      where,
                      entry.name,
                      entry.begin,
                      filled));
    }
    filled = entry.end;
  }
  if (filled != data_bytes) {
    throw InvalidInput(
        fmt::format("{}: the tensors end at byte {}, the data at {}: the header and the file do "
                    "not belong together",
                    where,
                    filled,
                    data_bytes));
  }
}

}  // namespace

std::uint64_t safetensors_header_bytes(std::string_view first_bytes,
                                       std::uint64_t file_bytes,
                                       const std::string& where) {
  if (file_bytes < kSafetensorsLengthBytes || first_bytes.size() < kSafetensorsLengthBytes) {
    throw InvalidInput(
        fmt::format("{}: {} bytes, too short for a safetensors file", where, file_bytes));
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, first_bytes.data(), kSafetensorsLengthBytes);
  const std::uint64_t possible = std::min(kMaxHeaderBytes, file_bytes - kSafetensorsLengthBytes);
  if (header_bytes > possible) {
    throw InvalidInput(
        fmt::format("{}: no safetensors file, or a damaged one: its first bytes would mean a "
                    "header of {} bytes, at most {} are possible",
                    where,
                    header_bytes,
                    possible));
  }
  return header_bytes;
}

SafetensorsFile read_safetensors_header(std::istream& file,
                                        std::uint64_t file_bytes,
                                        const std::string& where) {
  const auto read = [&](std::uint64_t bytes) {
    std::string text(bytes, '\0');
    if (!file.read(text.data(), static_cast<std::streamsize>(bytes))) {
      throw SystemFailure(fmt::format("{}: reading {} bytes failed", where, bytes));
    }
    return text;
  };
  SafetensorsFile result;
  const std::string first = read(std::min<std::uint64_t>(file_bytes, kSafetensorsLengthBytes));
  result.header = read(safetensors_header_bytes(first, file_bytes, where));
  result.data_begin = kSafetensorsLengthBytes + result.header.size();
  result.tensors = parse_safetensors_header(result.header, file_bytes - result.data_begin, where);
  return result;
}

SafetensorsHeader parse_safetensors_header(std::string_view json,
                                           std::uint64_t data_bytes,
                                           const std::string& where) {
  const Json document = parse_json(json, where);
  if (!document.is_object()) {
    throw InvalidInput(fmt::format("{}: the header must be a JSON object", where));
  }
  SafetensorsHeader header;
  for (const auto& [name, value] : document.items()) {
    if (name != "__metadata__") {
      header.entries.push_back(
          read_entry(name, value, data_bytes, fmt::format("{}: {}", where, name)));
      continue;
    }
    const std::string metadata_where = fmt::format("{}: __metadata__", where);
    const ObjectReader checked(value, metadata_where);
    for (const auto& [key, text] : value.items()) {
      header.metadata[key] = value_as<std::string>(text, fmt::format("{}.{}", metadata_where, key));
    }
  }
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  check_cover(header.entries, data_bytes, where);
  return header;
}

}  // namespace entrain
