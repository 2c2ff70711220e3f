// Half-written files: removed when a signal ends the program.
#pragma once

#include <filesystem>

namespace entrain {

// A file that is useless until complete; registered with the signal handlers while this object
// lives. At most 16 at a time; further ones are not removed and keep their temporary names.
class PartialFile {
 public:
  explicit PartialFile(const std::filesystem::path& path);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

 private:
  int slot_ = -1;
};

// From now on SIGINT, SIGTERM and SIGHUP remove the current partial files and then end the
// program as usual. A signal that the parent process set to ignored stays ignored.
void remove_partial_files_on_signals();

}  // namespace entrain
