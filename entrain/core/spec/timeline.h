// A program with times: predicted by the simulator or measured by the engine, in one form.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace entrain {

enum class EventCategory : std::uint8_t { kCompute, kSend, kReceive, kWait };

struct TimelineEvent {
  int replica = 0;
  int lane = 0;
  int operation = 0;  // position in the lane's list; for kWait the operation that waited
  EventCategory category = EventCategory::kCompute;
  std::chrono::nanoseconds start{0};  // since the step's start
  std::chrono::nanoseconds finish{0};
};

struct LaneUsage {
  std::chrono::nanoseconds busy{0};    // compute operations
  std::chrono::nanoseconds finish{0};  // of the last compute operation
  std::int64_t peak_bytes = 0;         // activations; 0 if not measured
};

struct Timeline {
  std::chrono::nanoseconds makespan{0};
  std::vector<std::vector<LaneUsage>> lanes;  // [replica][lane]
  std::vector<TimelineEvent> events;          // empty unless requested
  bool stopped = false;  // simulate() stopped early: makespan is a bound, lanes are empty
};

// Idle share of all lanes within the makespan, in [0, 1]; 0 for an empty timeline.
double bubble_fraction(const Timeline& timeline);

}  // namespace entrain
