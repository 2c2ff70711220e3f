// Who writes into a folder: `run.lock` in it, held by one process for as long as it lives.
//
// Read first: FolderLock. Whether a holder still lives is known of processes that this one's kernel
// can ask for, by number and start; of all others by a file that is refreshed, on network file
// systems too, by the file server's clock alone.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace entrain {

inline constexpr const char* kLockName = "run.lock";

// A process as its lock names it.
struct LockHolder {
  std::string host;
  std::string kernel;         // boot id and process namespace: where `process` means something
  std::int64_t process = 0;   // in that namespace
  std::uint64_t started = 0;  // clock ticks since the kernel's start; tells equal numbers apart
  std::string since;          // UTC
  int member = 0;             // 0 claimed the folder, the others belong to it
};

// "process 4711 on host alpha (rank 2), since 2026-11-23T16:40:53Z"
std::string to_text(const LockHolder& holder);

struct LockOptions {
  int member = 0;
  std::chrono::milliseconds patience{15'000};  // with holders that may be about to end
  std::chrono::milliseconds beat{5'000};       // between two refreshments
  std::chrono::milliseconds silence{60'000};   // after which a holder of another kernel is gone
  // Called once, on a thread of the lock's own, when another process has taken the folder, as after
  // a silence: nothing more may be written then.
  std::function<void(const std::string& why)> lost;
};

class FolderLock {
 public:
  // Member 0 claims the folder, which is created: there must be no other holder, of any member.
  // The others add themselves to a claimed one. Locks of processes that are gone are removed.
  //
  // Throws  InvalidInput naming the holders when they still live after options.patience;
  //         SystemFailure when the folder cannot be made or the file not be written.
  FolderLock(std::filesystem::path folder, LockOptions options);
  // Releases; removes the folder if this object made it and nothing else is in it.
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
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread thread_;
};

// Removes locks whose processes this kernel knows to be gone. Others are left to their silence.
void remove_dead_locks(const std::filesystem::path& folder);

// Holders of the folder that this kernel knows to be gone: they ended without releasing.
std::vector<LockHolder> dead_holders(const std::filesystem::path& folder);

}  // namespace entrain
