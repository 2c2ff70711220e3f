#include "entrain/core/base/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "entrain/core/base/text.h"

namespace entrain {
namespace {

using Clock = std::chrono::steady_clock;

// Before this a command is quick, and a bar would only flicker.
constexpr std::chrono::milliseconds kQuick(2000);
constexpr std::chrono::milliseconds kRedraw(100);
constexpr std::chrono::minutes kLogLine(1);
constexpr std::chrono::minutes kLong(1);  // of all work

std::string amount(ProgressUnit unit, std::int64_t value) {
  return unit == ProgressUnit::kBytes ? format_bytes(value) : format_count(value);
}

// "12 of 144 (8 %)"
std::string state(ProgressUnit unit, std::int64_t done, std::int64_t total) {
  if (total <= 0) {
    return amount(unit, done);
  }
  const std::string share =
      fmt::format("{:.0f} %", 100.0 * static_cast<double>(done) / static_cast<double>(total));
  return unit == ProgressUnit::kShare
             ? share
             : fmt::format("{} of {} ({})", amount(unit, done), amount(unit, total), share);
}

// "[=====     ] "
std::string bar(std::int64_t done, std::int64_t total) {
  constexpr int kWidth = 16;
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const int filled = static_cast<int>(share * kWidth);
  return fmt::format("[{:=<{}}{: <{}}] ", "", filled, "", kWidth - filled);
}

}  // namespace

ProgressOutput standard_error_progress() {
  ProgressOutput output;
  output.terminal = ::isatty(STDERR_FILENO) == 1;
  winsize size{};
  if (output.terminal && ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    output.columns = size.ws_col;
  }
  output.now = [] { return Clock::now(); };
  output.write = [](const std::string& text) {
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
  };
  return output;
}

Progress::Progress(std::string title, std::int64_t total, ProgressUnit unit, ProgressOutput output)
    : title_(std::move(title)),
      total_(total),
      unit_(unit),
      output_(std::move(output)),
      started_(output_.now()),
      shown_(started_) {}

Progress::~Progress() {
  finish();
}

void Progress::advance(std::int64_t count) {
  const MutexLock lock(mutex_);
  set(done_ + count);
}

void Progress::reach(std::int64_t done) {
  const MutexLock lock(mutex_);
  set(std::max(done, done_));
}

void Progress::reach_share(double share) {
  reach(std::llround(share * static_cast<double>(total_)));
}

void Progress::set(std::int64_t done) {
  done_ = done;
  const Time now = output_.now();
  const auto elapsed = now - started_;
  // A log reports long work early; a terminal shows the remaining time anyway.
  const bool is_long = !any_shown_ && elapsed >= kQuick && done_ > 0 &&
                       static_cast<double>(total_) / static_cast<double>(done_) * elapsed > kLong;
  const bool due = output_.terminal ? elapsed >= kQuick && now - shown_ >= kRedraw
                                    : is_long || now - shown_ >= kLogLine;
  if (due && !finished_) {
    show(now);
  }
}

void Progress::finish() {
  const MutexLock lock(mutex_);
  if (any_shown_ && !finished_) {
    show(output_.now());
    if (output_.terminal) {
      output_.write("\n");
    }
  }
  finished_ = true;
}

void Progress::show(Time now) {
  any_shown_ = true;
  shown_ = now;
  const std::string text = fmt::format(
      "{}, {}", state(unit_, done_, total_), format_elapsed(now - started_, done_, total_));
  if (!output_.terminal) {
    output_.write(fmt::format("{}: {}\n", title_, text));
    return;
  }
  const auto columns = static_cast<std::size_t>(std::max(1, output_.columns - 1));
  std::string line = title_ + " " + (total_ > 0 ? bar(done_, total_) : "") + text;
  if (line.size() > columns) {
    line = title_ + " " + text;
  }
  output_.write("\r" + line.substr(0, columns) + "\x1b[K");
}

std::string format_clock(std::chrono::nanoseconds duration) {
  const auto seconds =
      std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(duration).count());
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 3600;
  const std::int64_t minutes = seconds / kMinute % kMinute;
  return seconds < kHour
             ? fmt::format("{}:{:02}", minutes, seconds % kMinute)
             : fmt::format("{}:{:02}:{:02}", seconds / kHour, minutes, seconds % kMinute);
}

std::string format_elapsed(std::chrono::nanoseconds elapsed,
                           std::int64_t done,
                           std::int64_t total) {
  const std::string text = format_clock(elapsed) + " elapsed";
  if (done <= 0 || done >= total) {
    return text;
  }
  const double left = static_cast<double>(elapsed.count()) / static_cast<double>(done) *
                      static_cast<double>(total - done);
  constexpr double kMost = 3.6e12 * 24 * 1000;  // a thousand days; longer estimates are useless
  return left > kMost
             ? text
             : fmt::format("{}, about {} left",
                           text,
                           format_clock(std::chrono::nanoseconds(static_cast<std::int64_t>(left))));
}

}  // namespace entrain
