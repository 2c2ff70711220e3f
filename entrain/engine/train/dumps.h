// The dumps that a run leaves when a rank fails: what every rank of this process did last.
//
// Read first: RunDumps::begin(). `entrain doctor` reads them (core/report/doctor.h).
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "entrain/core/base/call_log.h"
#include "entrain/core/spec/plan.h"

namespace entrain::engine {

// Leaves dumps as SIGUSR1 does, where signals are watched; may be called in a signal handler.
void request_dumps() noexcept;

// Moves the dumps that an earlier run or attempt left to dumps/failure-N, N rising; the last five
// such folders stay.
//
// Throws  SystemFailure when they cannot be moved.
void keep_dumps(const std::filesystem::path& run_folder);

class RunDumps {
 public:
  // For ranks `first` … `first + count - 1` of the plan, those of this process: all of them where
  // ranks are threads.
  RunDumps(std::filesystem::path run_folder, const Plan& plan, int first, int count);
  ~RunDumps();
  RunDumps(const RunDumps&) = delete;
  RunDumps& operator=(const RunDumps&) = delete;

  // Requires  a rank of this process.
  CallLog& log(int rank);

  // Around a rank's body, on its thread: before it; behind it; or, in a handler of what it threw,
  // when it has failed. The first rank of this process to fail has all of them dumped at once,
  // before any of them can go on. A rank that a drill made vanish is left out. Dumping itself never
  // throws: what cannot be written is said on standard error.
  void begin(int rank);
  void finish(int rank);
  void fail(int rank);

  // From now on a signal that kills the process (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) leaves
  // dumps first, and SIGUSR1 leaves dumps and nothing else. One object of a process at a time. The
  // work is done by a thread of its own, which a crash may have crippled; after two seconds the
  // signal goes on without it. Dumps on request go when all ranks have ended well.
  void watch_signals();

 private:
  struct Watcher;
  void write_all(const std::string& reason);
  void remove_requested();

  std::filesystem::path folder_;
  int first_;
  std::vector<std::unique_ptr<CallLog>> logs_;
  std::mutex mutex_;
  bool written_ = false;
  std::unique_ptr<Watcher> watcher_;
};

}  // namespace entrain::engine
