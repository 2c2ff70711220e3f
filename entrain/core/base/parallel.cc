#include "entrain/core/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "entrain/core/base/errors.h"

namespace entrain {

void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work) {
  ENTRAIN_INVARIANT(threads >= 1, "parallel_for needs at least one thread");
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::int64_t failed_index = count;
  std::exception_ptr failure;
  const auto run = [&] {
    while (!failed) {
      const std::int64_t index = next++;
      if (index >= count) {
        return;
      }
      try {
        work(index);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (index < failed_index) {
          failed_index = index;
          failure = std::current_exception();
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
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace entrain
