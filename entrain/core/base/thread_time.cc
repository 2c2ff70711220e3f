#include "entrain/core/base/thread_time.h"

#include <time.h>

#include "entrain/core/base/errors.h"

namespace entrain {

std::chrono::nanoseconds thread_time() {
  timespec now{};
  const int status = clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  ENTRAIN_INVARIANT(status == 0, "the thread's processor time cannot be read");
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace entrain
