// How much memory this host would still give a process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace entrain {

struct HostMemory {
  std::int64_t available_bytes = -1;  // -1: the system does not say
  std::string source;                 // what bounds it, for people; empty where unknown
};

// The least of MemAvailable and what the process's control groups (versions 1 and 2, with all that
// they are in) have left; pages of files that a group could drop count as left. `root`: in place
// of "/".
HostMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace entrain
