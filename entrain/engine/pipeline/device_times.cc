#include "entrain/engine/pipeline/device_times.h"

#include <deque>
#include <utility>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "entrain/core/base/errors.h"

namespace entrain::engine {

struct DeviceTimes::Events {
  struct Pair {
    int position = -1;  // -1: not ended
    c10::Event begin;
    c10::Event end;
  };

  explicit Events(at::Device on) : device(on), origin(timed_event()) {}

  // An event that records time.
  [[nodiscard]] c10::Event timed_event() const {
    return {device.type(), c10::EventFlag::BACKEND_DEFAULT};
  }
  void record(c10::Event& event) const {
    event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  [[nodiscard]] Clock::time_point time_of(const c10::Event& event) const {
    const std::chrono::duration<double, std::milli> since(origin.elapsedTime(event));
    return origin_time + std::chrono::duration_cast<Clock::duration>(since);
  }

  at::Device device;
  c10::Event origin;
  Clock::time_point origin_time;
  std::deque<Pair> pairs;
};

DeviceTimes::DeviceTimes(at::Device device) : events_(std::make_unique<Events>(device)) {
  events_->record(events_->origin);
  events_->origin.synchronize();
  events_->origin_time = Clock::now();
}

DeviceTimes::~DeviceTimes() = default;

void DeviceTimes::begin() {
  events_->pairs.push_back({-1, events_->timed_event(), events_->timed_event()});
  events_->record(events_->pairs.back().begin);
}

void DeviceTimes::end(int position) {
  ENTRAIN_INVARIANT(!events_->pairs.empty() && events_->pairs.back().position < 0,
                    "device work ended without a beginning");
  events_->pairs.back().position = position;
  events_->record(events_->pairs.back().end);
}

std::vector<DeviceTimes::Span> DeviceTimes::take() {
  std::vector<Span> spans;
  if (events_->pairs.empty()) {
    return spans;
  }
  events_->pairs.back().end.synchronize();
  for (const Events::Pair& pair : std::exchange(events_->pairs, {})) {
    ENTRAIN_INVARIANT(pair.position >= 0, "device work without an end");
    spans.push_back({pair.position, events_->time_of(pair.begin), events_->time_of(pair.end)});
  }
  return spans;
}

}  // namespace entrain::engine
