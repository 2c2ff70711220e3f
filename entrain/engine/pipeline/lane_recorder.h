// Times and memory of a lane's step: events, busy time, bytes.
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

// Records into a step's outcome what the options request. For the lane's own thread. Compute on a
// device other than the CPU is timed there; its times are in the outcome after finish().
class LaneRecorder {
 public:
  using Clock = std::chrono::steady_clock;

  // `device`: operations are timed on it; `origin`: of all times.
  // Requires  options and outcome outlive this object.
  LaneRecorder(const RankPlace& place,
               const ExecutorOptions& options,
               at::Device device,
               Clock::time_point origin,
               StepOutcome& outcome);

  // Records an interval at a position of the lane's list.
  void event(EventCategory category,
             int position,
             Clock::time_point start,
             Clock::time_point finish = Clock::now());
  // The same for a wait; a result available at once is not a wait.
  void wait(int position, Clock::time_point start);

  // Called around forward, backward and its halves; as in the simulator, step-wide operations are
  // not busy time.
  Clock::time_point begin_compute();
  void end_compute(int position, Clock::time_point start);
  // At the end of the step: waits for the device and reads the times measured there.
  void finish();

  // Memory, if measured: what this thread allocates from begin_memory() to end_memory(), plus
  // received and less sent messages.
  void begin_memory();
  void end_memory() { live_.reset(); }
  void bytes_come(std::int64_t bytes);
  void bytes_go(std::int64_t bytes) { bytes_come(-bytes); }
  // After an operation: the bytes held between operations, and the peak within this one.
  void note_memory();

 private:
  void count_compute(int position, Clock::time_point start, Clock::time_point finish);

  RankPlace place_;
  const ExecutorOptions& options_;
  Clock::time_point origin_;
  StepOutcome& outcome_;
  std::chrono::nanoseconds processor_start_{0};  // start of the current compute operation
  std::unique_ptr<LiveBytes> live_;
  std::optional<DeviceTimes> device_times_;
};

}  // namespace entrain::engine
