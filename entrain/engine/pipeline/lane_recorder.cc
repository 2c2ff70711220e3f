#include "entrain/engine/pipeline/lane_recorder.h"

#include <algorithm>

#include "entrain/core/base/thread_time.h"

namespace entrain::engine {
namespace {

// The time to look up inputs that are present is not a wait.
constexpr std::chrono::microseconds kShortestWait{10};

}  // namespace

LaneRecorder::LaneRecorder(const RankPlace& place,
                           const ExecutorOptions& options,
                           at::Device device,
                           Clock::time_point origin,
                           StepOutcome& outcome)
    : place_(place), options_(options), origin_(origin), outcome_(outcome) {
  if (!device.is_cpu()) {
    device_times_.emplace(device);
  }
}

void LaneRecorder::event(EventCategory category,
                         int position,
                         Clock::time_point start,
                         Clock::time_point finish) {
  if (options_.record_events) {
    outcome_.events.push_back(
        {place_.replica, place_.lane, position, category, start - origin_, finish - origin_});
  }
}

void LaneRecorder::wait(int position, Clock::time_point start) {
  if (Clock::now() - start >= kShortestWait) {
    event(EventCategory::kWait, position, start);
  }
}

LaneRecorder::Clock::time_point LaneRecorder::begin_compute() {
  const Clock::time_point start = Clock::now();
  processor_start_ = thread_time();
  if (device_times_.has_value()) {
    device_times_->begin();
  }
  return start;
}

void LaneRecorder::end_compute(int position, Clock::time_point start) {
  if (device_times_.has_value()) {
    device_times_->end(position);
    return;
  }
  outcome_.processor += thread_time() - processor_start_;
  count_compute(position, start, Clock::now());
}

void LaneRecorder::count_compute(int position, Clock::time_point start, Clock::time_point finish) {
  outcome_.usage.busy += finish - start;
  outcome_.usage.finish = finish - origin_;
  event(EventCategory::kCompute, position, start, finish);
}

void LaneRecorder::finish() {
  if (!device_times_.has_value()) {
    return;
  }
  for (const DeviceTimes::Span& span : device_times_->take()) {
    outcome_.processor += span.finish - span.start;
    count_compute(span.position, span.start, span.finish);
  }
  const auto begins_earlier = [](const TimelineEvent& first, const TimelineEvent& second) {
    return first.start < second.start;
  };
  std::stable_sort(outcome_.events.begin(), outcome_.events.end(), begins_earlier);
}

void LaneRecorder::begin_memory() {
  if (options_.measure_memory) {
    live_ = std::make_unique<LiveBytes>(options_.stage.device.type());
  }
}

void LaneRecorder::bytes_come(std::int64_t bytes) {
  if (live_ != nullptr) {
    live_->add(bytes);
  }
}

void LaneRecorder::note_memory() {
  if (live_ == nullptr) {
    return;
  }
  outcome_.usage.peak_bytes = std::max(outcome_.usage.peak_bytes, live_->bytes());
  outcome_.working_bytes = std::max(outcome_.working_bytes, live_->peak());
  live_->reset_peak();
}

}  // namespace entrain::engine
