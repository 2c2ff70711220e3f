// Times arithmetic on a device.
#pragma once

#include <functional>
#include <memory>

#include <ATen/ATen.h>

namespace entrain::engine {

// Nanoseconds from whatever beginning.
using NanosecondClock = std::function<double()>;

// CPU: processor time of the calling thread, which must do the work alone; on a quiet machine that
// is wall time, on a busy one it leaves out the turns of others. Other devices: events on the
// current stream, so that what the host does beside it does not count.
class Stopwatch {
 public:
  // `clock` is read instead, where it is given: for tests, which count work and not time.
  explicit Stopwatch(at::Device device, NanosecondClock clock = {});
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  void start();
  // Nanoseconds since start(). Waits for the device.
  double stop();

 private:
  struct Events;
  std::unique_ptr<Events> events_;  // none where a clock is read
  NanosecondClock clock_;
  double started_ = 0;
};

}  // namespace entrain::engine
