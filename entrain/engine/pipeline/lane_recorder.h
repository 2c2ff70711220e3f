// What a lane's step leaves in times and bytes: events, busy time, memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "entrain/core/spec/timeline.h"

#include "entrain/engine/models/live_bytes.h"
#include "entrain/engine/pipeline/device_times.h"
#include "entrain/engine/pipeline/lane_step.h"
#include "entrain/engine/pipeline/rank_places.h"

namespace entrain::engine {

// Notes into a step's outcome what the options ask for. For the lane's own thread. Compute on a
// device that is not the processor is timed there, and stands in the outcome after finish().
class LaneRecorder {
 public:
  using Clock = std::chrono::steady_clock;

  // `device`: that operations are timed on; `origin`: of all times.
  // Requires  options and outcome outlive this object.
  LaneRecorder(const RankPlace& place,
               const ExecutorOptions& options,
               at::Device device,
               Clock::time_point origin,
               StepOutcome& outcome);

  // Something that began at `start` and ends now, at a position of the lane's list.
  void event(EventCategory category, int position, Clock::time_point start);
  void event(EventCategory category,
             int position,
             Clock::time_point start,
             Clock::time_point finish);
  // The same for waiting; what is found at once is no wait.
  void wait(int position, Clock::time_point start);

  // Around forward, backward and its halves: as in the simulator, step-wide operations do not count
  // as busy.
  Clock::time_point begin_compute();
  void end_compute(int position, Clock::time_point start);
  // At the end of the step: waits for the device, and takes over what was timed there.
  void finish();

  // Memory, where measured: what this thread allocates from begin_memory() to end_memory(), and
  // what comes to it or leaves it in messages.
  void begin_memory();
  void end_memory() { live_.reset(); }
  void bytes_come(std::int64_t bytes);
  void bytes_go(std::int64_t bytes) { bytes_come(-bytes); }
  // Behind an operation: what is held between operations, and the most there was in this one.
  void note_memory();

 private:
  void count_compute(int position, Clock::time_point start, Clock::time_point finish);

  RankPlace place_;
  const ExecutorOptions& options_;
  Clock::time_point origin_;
  StepOutcome& outcome_;
  std::chrono::nanoseconds processor_start_{0};  // of the compute operation at hand
  std::unique_ptr<LiveBytes> live_;
  std::optional<DeviceTimes> device_times_;
};

}  // namespace entrain::engine
