// When a device computed: events on its stream, read on the host's clock.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <ATen/ATen.h>

namespace entrain::engine {

// What a thread asks of a device returns before it is done, so the host's clock beside the call
// tells nothing. Pairs of events on the thread's current stream do; a first event, waited for where
// the host's clock is read, lays both clocks beside each other (to some microseconds).
class DeviceTimes {
 public:
  using Clock = std::chrono::steady_clock;

  struct Span {
    int position = 0;
    Clock::time_point start;
    Clock::time_point finish;
  };

  // Waits for the device. Requires  one that is not the processor.
  explicit DeviceTimes(at::Device device);
  ~DeviceTimes();
  DeviceTimes(const DeviceTimes&) = delete;
  DeviceTimes& operator=(const DeviceTimes&) = delete;

  // Around what is asked of the device; neither waits.
  void begin();
  void end(int position);

  // All spans since the last call, in order. Waits for the device.
  std::vector<Span> take();

 private:
  struct Events;
  std::unique_ptr<Events> events_;
};

}  // namespace entrain::engine
