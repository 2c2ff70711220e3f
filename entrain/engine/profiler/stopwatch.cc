#include "entrain/engine/profiler/stopwatch.h"

#include <utility>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "entrain/core/base/thread_time.h"

namespace entrain::engine {
struct Stopwatch::Events {
  explicit Events(at::Device on)
      : device(on),
        begin(on.type(), c10::EventFlag::BACKEND_DEFAULT),
        end(on.type(), c10::EventFlag::BACKEND_DEFAULT) {}
  [[nodiscard]] c10::Stream stream() const {
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  }
  at::Device device;
  c10::Event begin;
  c10::Event end;
};

Stopwatch::Stopwatch(at::Device device, NanosecondClock clock) : clock_(std::move(clock)) {
  if (clock_ == nullptr && device.is_cpu()) {
    clock_ = [] { return static_cast<double>(thread_time().count()); };
  } else if (clock_ == nullptr) {
    events_ = std::make_unique<Events>(device);
  }
}

Stopwatch::~Stopwatch() = default;

void Stopwatch::start() {
  if (events_ == nullptr) {
    started_ = clock_();
  } else {
    events_->begin.record(events_->stream());
  }
}

double Stopwatch::stop() {
  if (events_ == nullptr) {
    return clock_() - started_;
  }
  events_->end.record(events_->stream());
  events_->end.synchronize();
  return 1e6 * events_->begin.elapsedTime(events_->end);
}

}  // namespace entrain::engine
