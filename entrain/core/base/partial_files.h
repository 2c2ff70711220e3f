// Half-written files: removed when a signal ends the program.
#pragma once

#include <filesystem>

namespace entrain {

// A file that is of no use before it is complete; known to the signal handlers as long as this
// lives. Of the first 16 at a time; further ones stay behind, under their temporary names.
class PartialFile {
 public:
  explicit PartialFile(const std::filesystem::path& path);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

 private:
  int slot_ = -1;
};

// From now on SIGINT, SIGTERM and SIGHUP remove the partial files there are and then end the
// program as they always do. A signal that the program's starter told it to ignore stays ignored.
void remove_partial_files_on_signals();

}  // namespace entrain
