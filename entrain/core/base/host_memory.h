// Memory that this host can still give a process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace entrain {

struct HostMemory {
  std::int64_t available_bytes = -1;  // -1: the system does not report it
  std::string source;                 // what limits it, as text; empty if unknown
};

// The minimum of MemAvailable and the remaining memory of the process's control groups (versions 1
// and 2, with all parents); file pages that a group could drop count as available. `root`: instead
// of "/".
HostMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace entrain
