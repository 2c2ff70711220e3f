// Reading whole files, and writing them so that no partial file is ever seen under its final name.
#pragma once

#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>

namespace entrain {

// Whole content; gzip is recognised by its magic bytes and inflated. A pipe is read to its end.
//
// Throws  InvalidInput when the path does not exist, is a folder or a device, or is a pipe into
//         which nothing is written for 5 seconds; SystemFailure when it cannot be read or the gzip
//         stream is damaged.
std::string read_file(const std::filesystem::path& path);

// Writes `path`.partial-<pid>, syncs, renames. On any failure the temporary file is removed and an
// earlier file under `path` is untouched. Parent folders are created. Symbolic links are followed:
// what they lead to is replaced, not the link. A stream is written to as it is.
//
// Throws  SystemFailure with the path and the system's reason.
void write_file(const std::filesystem::path& path, std::string_view content);

// The same for content that is produced piece by piece; `produce` writes to the stream.
void write_file(const std::filesystem::path& path,
                const std::function<void(std::ostream&)>& produce);

// Whether what is written to `path` goes into a stream and so replaces nothing: a pipe, a character
// device, or the file that is this program's standard output or error.
bool is_stream(const std::filesystem::path& path);

// Where the symbolic links at `path` lead, whether or not something is there; `path` itself where
// it is no link.
//
// Throws  SystemFailure for links that lead nowhere (a loop).
std::filesystem::path follow_links(const std::filesystem::path& path);

// Makes names created in, renamed into or removed from `folder` last through a power cut;
// write_file() syncs what is in a file, not the folder that names it.
//
// Throws  SystemFailure with the path and the system's reason.
void sync_folder(const std::filesystem::path& folder);

}  // namespace entrain
