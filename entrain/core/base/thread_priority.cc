#include "entrain/core/base/thread_priority.h"

#include <algorithm>
#include <cstdint>

#ifdef __linux__
#include <sys/resource.h>
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

// Of the calling thread, where it is an ordinary one. A refusal is no failure: the work gets done
// anyway.
void ask_for_slice(std::uint64_t slice_ns) {
  constexpr std::uint32_t kOrdinary = 0;  // SCHED_OTHER
  SchedulerAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) == 0 &&
      attributes.policy == kOrdinary) {
    attributes.slice_ns = slice_ns;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
  }
}
#endif

}  // namespace

void run_in_background() {
#ifdef __linux__
  // Linux has a niceness for every thread.
  const auto thread = static_cast<id_t>(gettid());
  setpriority(PRIO_PROCESS, thread, std::max(kBackgroundNice, getpriority(PRIO_PROCESS, thread)));
  ask_for_slice(0);  // the default: its parent may wake promptly
#endif
}

void wake_promptly() {
#ifdef __linux__
  ask_for_slice(kShortSliceNs);
#endif
}

}  // namespace entrain
