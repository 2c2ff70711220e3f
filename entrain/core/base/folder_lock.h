// Locks a folder for writing: `run.lock` in it, held by one process while it lives.
//
// Read first: FolderLock. The kernel reports whether a holder on the same kernel still lives, by
// number and start time. Other holders refresh a file; its age is measured by the file server's
// clock, so this works on network file systems too.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "entrain/core/base/thread_safety.h"

namespace entrain {

inline constexpr const char* kLockName = "run.lock";

// A process as named in its lock.
struct LockHolder {
  std::string host;
  std::string kernel;         // boot id and process namespace, in which `process` is unique
  std::int64_t process = 0;   // in that namespace
  std::uint64_t started = 0;  // clock ticks since boot; distinguishes reused numbers
  std::string since;          // UTC
  int member = 0;             // 0 claimed the folder, the others joined it
};

// "process 4711 on host alpha (rank 2), since 2026-11-23T16:40:53Z"
std::string to_text(const LockHolder& holder);

struct LockOptions {
  int member = 0;
  std::chrono::milliseconds patience{15'000};  // waits for holders that may be about to end
  std::chrono::milliseconds beat{5'000};       // between two refreshes
  std::chrono::milliseconds silence{60'000};   // then a holder on another kernel is gone
  // Called once, on a thread of the lock, when another process has taken the folder, for example
  // after a silence: the run must not write any more.
  std::function<void(const std::string& why)> lost;
};

class FolderLock {
 public:
  // Member 0 claims the folder, which is created: there must be no other holder, of any member.
  // Others join a claimed folder. Locks of dead processes are removed.
  //
  // Throws  InvalidInput naming the holders if they still live after options.patience;
  //         SystemFailure if the folder cannot be created or the file cannot be written.
  FolderLock(std::filesystem::path folder, LockOptions options);
  // Releases the lock; removes the folder if this object made it and it is otherwise empty.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  void claim(const std::filesystem::path& candidate);
  void keep();

  std::filesystem::path folder_;
  LockOptions options_;
  std::filesystem::path path_;
  bool made_folder_ = false;
  int descriptor_ = -1;
  Mutex mutex_;
  std::condition_variable changed_;
  bool closing_ ENTRAIN_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// "'runs/a' is in use by process 4711 …; wait for its end or choose another folder" of holders that
// a claim would wait for, by this host's clock; empty if there are none. Writes nothing.
std::string in_use(const std::filesystem::path& folder);

// Removes locks of processes known to be dead on this kernel. Others expire by their silence.
void remove_dead_locks(const std::filesystem::path& folder);

// Holders known to be dead on this kernel: they ended without releasing.
std::vector<LockHolder> dead_holders(const std::filesystem::path& folder);

}  // namespace entrain
