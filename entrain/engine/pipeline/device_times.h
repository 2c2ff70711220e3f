// When a device computed: events on its stream, converted to the host's clock.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <ATen/ATen.h>

namespace entrain::engine {

// Calls that queue work on a device return before it is done, so the host's clock around the call
// is useless. Pairs of events on the thread's current stream measure the work. A first event, read
// together with the host's clock, aligns both clocks (to some microseconds).
class DeviceTimes {
 public:
  using Clock = std::chrono::steady_clock;

  struct Span {
    int position = 0;
    Clock::time_point start;
    Clock::time_point finish;
  };

  // Waits for the device. Requires  a device other than the CPU.
  explicit DeviceTimes(at::Device device);
  ~DeviceTimes();
  DeviceTimes(const DeviceTimes&) = delete;
  DeviceTimes& operator=(const DeviceTimes&) = delete;

  // Called before and after queued work; neither waits.
  void begin();
  void end(int position);

  // All spans since the last call, in order. Waits for the device.
  std::vector<Span> take();

 private:
  struct Events;
  std::unique_ptr<Events> events_;
};

}  // namespace entrain::engine
