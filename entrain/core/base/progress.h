// Progress of long work on standard error: a bar that redraws itself on a terminal, silent
// otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace entrain {

class Progress {
 public:
  // Requires  total >= 0 (0: unknown, shows a count).
  Progress(std::string title, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t count = 1);
  void finish();

 private:
  void draw();

  std::string title_;
  std::int64_t total_;
  std::int64_t done_ = 0;
  bool enabled_;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace entrain
