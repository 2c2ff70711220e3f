#include "entrain/core/base/thread_priority.h"

#include <algorithm>
#include <cstdint>

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace entrain {
namespace {

#ifdef __linux__
constexpr int kBackgroundNice = 10;
constexpr std::uint64_t kShortSliceNs = 100'000;  // the shortest that Linux grants

// What sched_getattr(2) and sched_setattr(2) take, for which the C library may have no functions.
struct SchedulerAttributes {
  std::uint32_t size = 0;
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t slice_ns = 0;  // of ordinary threads, since Linux 6.12; 0: the default
  std::uint64_t deadline_ns = 0;
  std::uint64_t period_ns = 0;
};

// Changes the calling thread's attributes, where it is an ordinary one. A refusal is no failure:
// the work gets done anyway.
template <typename Change>
void change_attributes(const Change& change) {
  constexpr std::uint32_t kOrdinary = 0;  // SCHED_OTHER
  SchedulerAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) == 0 &&
      attributes.policy == kOrdinary) {
    change(attributes);
    syscall(SYS_sched_setattr, 0, &attributes, 0);
  }
}
#endif

}  // namespace

void run_in_background() {
#ifdef __linux__
  change_attributes([](SchedulerAttributes& attributes) {
    attributes.nice = std::max(kBackgroundNice, attributes.nice);
    attributes.slice_ns = 0;  // its parent may wake promptly
  });
#endif
}

void wake_promptly() {
#ifdef __linux__
  change_attributes([](SchedulerAttributes& attributes) { attributes.slice_ns = kShortSliceNs; });
#endif
}

}  // namespace entrain
