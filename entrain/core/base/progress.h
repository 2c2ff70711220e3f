// Progress of long work on standard error, with elapsed and remaining time: one line, redrawn, on
// a terminal; a line per minute in a log; nothing for short work. Own code, since the
// distribution's only library for C++, Boost's, shows no times and takes a log for a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "entrain/core/base/thread_safety.h"

namespace entrain {

enum class ProgressUnit : std::uint8_t {
  kCount,  // "12 of 144"
  kBytes,  // "1.2 GiB of 3.5 GiB"
  kShare,  // only percent, if the total means nothing to a reader
};

// Where progress is shown, and its clock. Tests replace both.
struct ProgressOutput {
  bool terminal = false;
  int columns = 80;  // of the terminal
  std::function<std::chrono::steady_clock::time_point()> now;
  std::function<void(const std::string&)> write;
};
ProgressOutput standard_error_progress();

// advance(), reach() and finish() may be called by several threads.
class Progress {
 public:
  static constexpr std::int64_t kShareTotal = 1000;  // for reach_share()

  // Requires  total >= 0 (0: unknown, neither share nor remaining time is shown).
  Progress(std::string title,
           std::int64_t total,
           ProgressUnit unit = ProgressUnit::kCount,
           ProgressOutput output = standard_error_progress());
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t count = 1);
  // `done` in total; a smaller value than before has no effect.
  void reach(std::int64_t done);
  // `share` of the total.
  void reach_share(double share);
  // Shows the final state if an earlier one was shown. Later calls have no effect.
  void finish();

 private:
  using Time = std::chrono::steady_clock::time_point;
  void set(std::int64_t done) ENTRAIN_REQUIRES(mutex_);
  void show(Time now) ENTRAIN_REQUIRES(mutex_);

  const std::string title_;
  const std::int64_t total_;
  const ProgressUnit unit_;
  const ProgressOutput output_;
  const Time started_;
  Mutex mutex_;
  std::int64_t done_ ENTRAIN_GUARDED_BY(mutex_) = 0;
  Time shown_ ENTRAIN_GUARDED_BY(mutex_);
  bool any_shown_ ENTRAIN_GUARDED_BY(mutex_) = false;
  bool finished_ ENTRAIN_GUARDED_BY(mutex_) = false;
};

// "0:42", "12:05", "1:02:03"
std::string format_clock(std::chrono::nanoseconds duration);

// "1:00 elapsed, about 2:10 left", estimated from the speed so far; "1:00 elapsed" if `done` is 0
// or not less than `total`.
std::string format_elapsed(std::chrono::nanoseconds elapsed, std::int64_t done, std::int64_t total);

}  // namespace entrain
