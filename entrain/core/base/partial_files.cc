#include "entrain/core/base/partial_files.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

namespace entrain {
namespace {

// Set while a file is partial. Lives for ever, as a signal may come at any time.
std::array<std::atomic<char*>, 16> partial_paths;

void remove_and_end(int signal) {
  for (std::atomic<char*>& path : partial_paths) {
    if (const char* name = path.load(); name != nullptr) {
      ::unlink(name);
    }
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

PartialFile::PartialFile(const std::filesystem::path& path) {
  char* copy = ::strdup(path.c_str());
  for (std::size_t slot = 0; copy != nullptr && slot < partial_paths.size(); ++slot) {
    char* unused = nullptr;
    if (partial_paths[slot].compare_exchange_strong(unused, copy)) {
      slot_ = static_cast<int>(slot);
      return;
    }
  }
  std::free(copy);
}

PartialFile::~PartialFile() {
  if (slot_ >= 0) {
    std::free(partial_paths[static_cast<std::size_t>(slot_)].exchange(nullptr));
  }
}

void remove_partial_files_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (std::signal(signal, remove_and_end) == SIG_IGN) {
      std::signal(signal, SIG_IGN);
    }
  }
}

}  // namespace entrain
