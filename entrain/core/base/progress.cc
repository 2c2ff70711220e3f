#include "entrain/core/base/progress.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "entrain/core/base/text.h"

namespace entrain {

Progress::Progress(std::string title, std::int64_t total)
    : title_(std::move(title)),
      total_(total),
      enabled_(::isatty(STDERR_FILENO) == 1),
      started_(std::chrono::steady_clock::now()),
      drawn_(started_) {}

Progress::~Progress() {
  finish();
}

void Progress::advance(std::int64_t count) {
  done_ += count;
  const auto now = std::chrono::steady_clock::now();
  if (enabled_ && now - drawn_ > std::chrono::milliseconds(80)) {
    drawn_ = now;
    draw();
  }
}

void Progress::finish() {
  if (enabled_) {
    draw();
    fmt::print(stderr, "\n");
    enabled_ = false;
  }
}

void Progress::draw() {
  const double elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  const double rate = elapsed > 0 ? static_cast<double>(done_) / elapsed : 0;
  if (total_ <= 0) {
    fmt::print(stderr, "\r{} {} ({:.0f}/s)\x1b[K", title_, format_count(done_), rate);
    return;
  }
  constexpr int kWidth = 28;
  const double fraction =
      std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0);
  const auto filled = static_cast<int>(fraction * kWidth);
  const double left = rate > 0 ? static_cast<double>(total_ - done_) / rate : 0;
  fmt::print(stderr,
             "\r{} [{:=<{}}{: <{}}] {}/{} {:.0f}/s {:.0f} s left\x1b[K",
             title_,
             "",
             filled,
             "",
             kWidth - filled,
             format_count(done_),
             format_count(total_),
             rate,
             left);
}

}  // namespace entrain
