// What the name of a shard's member says: its sample, its format, its number.
#pragma once

#include <string>
#include <string_view>

namespace entrain {

// In ASCII.
std::string lower(std::string_view text);

struct NameParts {
  std::string_view key;        // empty for a member of no sample
  std::string_view extension;  // everything after the first dot of the file name
};
NameParts split_name(std::string_view path);

// Why a member belongs to no sample; empty where it belongs to one.
std::string reason_to_skip(std::string_view path);

// An extension is FIELD.FORMAT or FORMAT.
std::string_view format_of(std::string_view extension);
std::string_view field_of(std::string_view extension);

// "image", "video" or "audio"; empty for a format that is none of these.
std::string_view medium_of(std::string_view format);
// Of a medium's format that is not read, and must not be dropped in silence: what to do, with the
// command that makes it readable. Empty for other formats.
std::string way_out_of(std::string_view format);

}  // namespace entrain
