#include "entrain/core/base/thread_priority.h"

#include <algorithm>

#ifdef __linux__
#include <sys/resource.h>
#include <unistd.h>
#endif

namespace entrain {

void run_in_background() {
#ifdef __linux__
  constexpr int kNice = 10;
  // Linux has a niceness for every thread. A refusal is no failure: the work gets done anyway.
  const auto thread = static_cast<id_t>(gettid());
  setpriority(PRIO_PROCESS, thread, std::max(kNice, getpriority(PRIO_PROCESS, thread)));
#endif
}

}  // namespace entrain
