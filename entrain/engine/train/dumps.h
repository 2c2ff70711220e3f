// Dumps written when a rank fails: the last operations of every rank of this process.
//
// Read first: RunDumps::begin(). `entrain doctor` reads them (core/report/doctor.h).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "entrain/core/base/call_log.h"
#include "entrain/core/base/thread_safety.h"
#include "entrain/core/spec/plan.h"

namespace entrain::engine {

// Writes dumps as SIGUSR1 does, if signals are watched; may be called in a signal handler.
void request_dumps() noexcept;

// Moves the dumps of an earlier run or attempt to dumps/failure-N, N rising; keeps the last five
// such folders.
//
// Throws  SystemFailure when they cannot be moved.
void keep_dumps(const std::filesystem::path& run_folder);

class RunDumps {
 public:
  // For ranks `first` … `first + count - 1` of the plan, those of this process: all ranks if
  // ranks are threads.
  RunDumps(std::filesystem::path run_folder, const Plan& plan, int first, int count);
  ~RunDumps();
  RunDumps(const RunDumps&) = delete;
  RunDumps& operator=(const RunDumps&) = delete;

  // Requires  a rank of this process.
  CallLog& log(int rank);

  // Called on the thread of a rank's body: before it; after it; or, in a handler of its exception,
  // when it has failed. The first rank of this process to fail dumps all of them at once,
  // before any of them can continue. A rank that a drill made vanish is skipped. Dumping never
  // throws: write errors are reported on standard error.
  void begin(int rank);
  void finish(int rank);
  void fail(int rank);

  // From now on a signal that kills the process (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) writes
  // dumps first, and SIGUSR1 only writes dumps. At most one object per process. A separate thread
  // writes them, which a crash may have disabled; after two seconds the
  // signal proceeds without dumps. Dumps on request are removed if all ranks end well.
  void watch_signals();

 private:
  struct Watcher;
  void write_all(const std::string& reason);
  void remove_requested();

  std::filesystem::path folder_;
  int first_;
  std::vector<std::unique_ptr<CallLog>> logs_;
  Mutex mutex_;  // of the files, too
  bool written_ ENTRAIN_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Watcher> watcher_;
};

}  // namespace entrain::engine
