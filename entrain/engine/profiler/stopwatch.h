// Times arithmetic on a device, and keeps it on one thread.
#pragma once

#include <functional>
#include <memory>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace entrain::engine {

// Nanoseconds since an arbitrary origin.
using NanosecondClock = std::function<double()>;

// CPU: processor time of the calling thread, which must do all the work. On a quiet machine this
// equals wall time; on a busy one it excludes the turns of other threads. Other devices: events on
// the current stream, so that concurrent host work does not count.
class Stopwatch {
 public:
  // `clock` replaces the device's clock if given: for tests, which count work instead of time.
  explicit Stopwatch(at::Device device, NanosecondClock clock = {});
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  void start();
  // Nanoseconds since start(). Waits for the device.
  double stop();

 private:
  struct Events;
  std::unique_ptr<Events> events_;  // null if a clock is given
  NanosecondClock clock_;
  double started_ = 0;
};

// While it lives, torch computes on one thread.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace entrain::engine
