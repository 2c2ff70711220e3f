#include "entrain/core/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/thread_safety.h"

namespace entrain {

void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work) {
  ENTRAIN_INVARIANT(threads >= 1, "parallel_for needs at least one thread");
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> failed{false};
  struct Failure {
    Mutex mutex;
    std::int64_t index ENTRAIN_GUARDED_BY(mutex) = 0;
    std::exception_ptr error ENTRAIN_GUARDED_BY(mutex);
  } failure;
  const auto run = [&] {
    while (!failed) {
      const std::int64_t index = next++;
      if (index >= count) {
        return;
      }
      try {
        work(index);
      } catch (...) {
        const MutexLock lock(failure.mutex);
        if (failure.error == nullptr || index < failure.index) {
          failure.index = index;
          failure.error = std::current_exception();
        }
        failed = true;
      }
    }
  };
  std::vector<std::thread> helpers;
  for (std::int64_t i = 1; i < std::min<std::int64_t>(threads, count); ++i) {
    helpers.emplace_back(run);
  }
  run();
  for (std::thread& helper : helpers) {
    helper.join();
  }
  const MutexLock lock(failure.mutex);
  if (failure.error != nullptr) {
    std::rethrow_exception(failure.error);
  }
}

}  // namespace entrain
