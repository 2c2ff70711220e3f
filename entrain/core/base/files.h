// Reads whole files, and writes files so that a partial file never has its final name.
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
// their target is replaced, not the link. A stream is written to directly.
//
// Throws  SystemFailure with the path and the system's reason.
void write_file(const std::filesystem::path& path, std::string_view content);

// The same for content written piece by piece; `produce` writes to the stream.
void write_file(const std::filesystem::path& path,
                const std::function<void(std::ostream&)>& produce);

// Whether `path` is a stream, so that writing replaces nothing: a pipe, a character
// device, or the file that is this program's standard output or error.
bool is_stream(const std::filesystem::path& path);

// The target of the symbolic links at `path`, whether or not it exists; `path` itself if
// it is not a link.
//
// Throws  SystemFailure for a loop of links.
std::filesystem::path follow_links(const std::filesystem::path& path);

// Makes the creation, renaming and removal of names in `folder` durable (fsync of the folder);
// write_file() syncs a file's content, not its folder.
//
// Throws  SystemFailure with the path and the system's reason.
void sync_folder(const std::filesystem::path& folder);

}  // namespace entrain
