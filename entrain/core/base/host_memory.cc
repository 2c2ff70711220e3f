#include "entrain/core/base/host_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "entrain/core/base/text.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

// Files with a control group's limit, usage and droppable pages.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* droppable;  // key of memory.stat
};
constexpr GroupFiles kVersion1 = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

// "max" is no number.
std::optional<std::int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

// The number after `key` at the beginning of a line.
std::optional<std::int64_t> number_of_key(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t value = 0;
    if (words >> name >> value && name == key) {
      return value;
    }
  }
  return std::nullopt;
}

void keep_least(std::int64_t available, const std::string& source, HostMemory& memory) {
  if (memory.available_bytes < 0 || available < memory.available_bytes) {
    memory = {std::max<std::int64_t>(0, available), source};
  }
}

void look_at_group(const fs::path& folder, const GroupFiles& files, HostMemory& memory) {
  const auto limit = number_in(folder / files.limit);
  const auto used = number_in(folder / files.used);
  if (!limit.has_value() || !used.has_value()) {
    return;
  }
  const std::int64_t droppable = number_of_key(folder / "memory.stat", files.droppable).value_or(0);
  keep_least(*limit - std::max<std::int64_t>(0, *used - droppable),
             concat("the control group's limit of ",
                    format_bytes(*limit),
                    ", of which ",
                    format_bytes(*used - droppable),
                    " are in use"),
             memory);
}

// The group and all that it is in, up to the mount. Within a container the process may see its
// group's path on the host and its group at the mount.
void look_at_groups(const fs::path& mount,
                    const std::string& group,
                    const GroupFiles& files,
                    HostMemory& memory) {
  fs::path relative = fs::path(group).relative_path();
  while (!relative.empty()) {
    look_at_group(mount / relative, files, memory);
    relative = relative.parent_path();
  }
  look_at_group(mount, files, memory);
}

}  // namespace

HostMemory host_memory(const fs::path& root) {
  HostMemory memory;
  const auto available = number_of_key(root / "proc/meminfo", "MemAvailable:");
  if (available.has_value()) {
    keep_least(*available * 1024, "MemAvailable of /proc/meminfo", memory);
  }
  // Lines of /proc/self/cgroup: number:controllers:path; version 2 has number 0 and no controllers.
  std::ifstream groups(root / "proc/self/cgroup");
  const fs::path mount = root / "sys/fs/cgroup";
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      look_at_groups(mount, group, kVersion2, memory);
      look_at_groups(mount / "unified", group, kVersion2, memory);
    } else if (controllers == "memory") {
      look_at_groups(mount / "memory", group, kVersion1, memory);
    }
  }
  return memory;
}

}  // namespace entrain
