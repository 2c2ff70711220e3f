// Reading whole files, and writing them so that no partial file is ever seen under its final name.
#pragma once

#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>

namespace entrain {

// Whole content; gzip is recognised by its magic bytes and inflated.
//
// Throws  InvalidInput when the path does not exist or is a folder; SystemFailure when it cannot be
//         read or the gzip stream is damaged.
std::string read_file(const std::filesystem::path& path);

// Writes `path`.partial-<pid>, syncs, renames. On any failure the temporary file is removed and an
// earlier file under `path` is untouched. Parent folders are created.
//
// Throws  SystemFailure with the path and the system's reason.
void write_file(const std::filesystem::path& path, std::string_view content);

// The same for content that is produced piece by piece; `produce` writes to the stream.
void write_file(const std::filesystem::path& path,
                const std::function<void(std::ostream&)>& produce);

// Makes names created in, renamed into or removed from `folder` last through a power cut;
// write_file() syncs what is in a file, not the folder that names it.
//
// Throws  SystemFailure with the path and the system's reason.
void sync_folder(const std::filesystem::path& folder);

}  // namespace entrain
