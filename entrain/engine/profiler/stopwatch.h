// Times arithmetic on a device.
#pragma once

#include <functional>
#include <memory>

#include <ATen/ATen.h>

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

}  // namespace entrain::engine
