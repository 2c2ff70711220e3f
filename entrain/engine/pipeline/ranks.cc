#include "entrain/engine/pipeline/ranks.h"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>

#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

// The error that a run reports: the first that is not the echo of another.
class FirstError {
 public:
  void keep(std::exception_ptr error, bool echo) {
    const std::lock_guard lock(mutex_);
    if (error_ == nullptr || (is_echo_ && !echo)) {
      error_ = std::move(error);
      is_echo_ = echo;
    }
  }
  void rethrow() const {
    if (error_ != nullptr) {
      std::rethrow_exception(error_);
    }
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  bool is_echo_ = false;
};

void run_rank(ThreadCommGroup& group,
              int rank,
              const std::function<void(int)>& body,
              FirstError& first) {
  at::set_num_threads(1);
  try {
    body(rank);
  } catch (const CommAborted&) {
    first.keep(std::current_exception(), /*echo=*/true);
  } catch (const std::exception& error) {
    first.keep(std::current_exception(), /*echo=*/false);
    group.abort(concat("rank ", rank, ": ", error.what()));
  } catch (...) {
    first.keep(std::current_exception(), /*echo=*/false);
    group.abort(concat("rank ", rank, ": unknown exception"));
  }
}

}  // namespace

void run_ranks(ThreadCommGroup& group, const std::function<void(int rank)>& body) {
  FirstError first;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(group.size()));
  try {
    for (int rank = 0; rank < group.size(); ++rank) {
      threads.emplace_back([&group, &body, &first, rank] { run_rank(group, rank, body, first); });
    }
  } catch (const std::system_error& error) {
    group.abort(concat("cannot start a thread for every rank: ", error.what()));
    first.keep(
        std::make_exception_ptr(SystemFailure(concat(
            "cannot start thread ", threads.size(), " of ", group.size(), ": ", error.what()))),
        /*echo=*/false);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  first.rethrow();
}

}  // namespace entrain::engine
