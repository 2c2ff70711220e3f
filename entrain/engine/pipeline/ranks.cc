#include "entrain/engine/pipeline/ranks.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>

#include "entrain/core/base/text.h"
#include "entrain/core/base/thread_priority.h"
#include "entrain/core/base/thread_safety.h"

#include "entrain/engine/comm/torch_errors.h"

namespace entrain::engine {
namespace {

// How the ranks of a run end, and the error that it reports: the first that was not caused by
// another.
class Endings {
 public:
  explicit Endings(int num_ranks) : running_(static_cast<std::size_t>(num_ranks), 1) {}

  void keep(std::exception_ptr error, const std::string& message, bool echo) {
    {
      const MutexLock lock(mutex_);
      if (error_ == nullptr || (is_echo_ && !echo)) {
        error_ = std::move(error);
        message_ = message;
        is_echo_ = echo;
      }
    }
    changed_.notify_all();
  }
  void ended(int rank) {
    {
      const MutexLock lock(mutex_);
      running_[static_cast<std::size_t>(rank)] = 0;
    }
    changed_.notify_all();
  }
  // Returns when all ranks have ended; gives up on ranks that do not end after a failure.
  void wait(const StuckRanks& stuck) {
    MutexLock lock(mutex_);
    const auto all_ended = [&]() ENTRAIN_REQUIRES(mutex_) {
      return std::ranges::count(running_, 1) == 0;
    };
    changed_.wait(lock.native(),
                  [&]() ENTRAIN_REQUIRES(mutex_) { return all_ended() || error_ != nullptr; });
    if (!stuck.give_up || changed_.wait_for(lock.native(), stuck.patience, all_ended)) {
      return;
    }
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < running_.size(); ++rank) {
      if (running_[rank] != 0) {
        ranks.push_back(static_cast<int>(rank));
      }
    }
    stuck.give_up(message_, ranks);
  }
  void rethrow() {
    const MutexLock lock(mutex_);
    if (error_ != nullptr) {
      std::rethrow_exception(error_);
    }
  }

 private:
  Mutex mutex_;
  std::condition_variable changed_;
  std::vector<char> running_ ENTRAIN_GUARDED_BY(mutex_);  // [rank]
  std::exception_ptr error_ ENTRAIN_GUARDED_BY(mutex_);
  std::string message_ ENTRAIN_GUARDED_BY(mutex_);
  bool is_echo_ ENTRAIN_GUARDED_BY(mutex_) = false;
};

// The error that ends the current rank, in a handler of all exceptions.
void keep_failure(ThreadCommGroup& group, int rank, Endings& endings) {
  try {
    without_torch_errors([] { throw; });
  } catch (const RankVanished&) {
    // A drill: the others must detect it themselves.
  } catch (const CommAborted& error) {
    endings.keep(std::current_exception(), error.what(), /*echo=*/true);
  } catch (const std::exception& error) {
    endings.keep(std::current_exception(), error.what(), /*echo=*/false);
    group.abort(concat("rank ", rank, ": ", error.what()));
  } catch (...) {
    endings.keep(std::current_exception(), "unknown exception", /*echo=*/false);
    group.abort(concat("rank ", rank, ": unknown exception"));
  }
}

}  // namespace

void run_ranks(ThreadCommGroup& group,
               const std::function<void(int rank)>& body,
               const StuckRanks& stuck) {
  Endings endings(group.size());
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(group.size()));
  try {
    for (int rank = 0; rank < group.size(); ++rank) {
      threads.emplace_back([&group, &body, &endings, rank] {
        at::set_num_threads(1);
        wake_promptly();
        try {
          body(rank);
        } catch (...) {
          keep_failure(group, rank, endings);
        }
        endings.ended(rank);
      });
    }
  } catch (const std::system_error& error) {
    group.abort(concat("cannot start a thread for every rank: ", error.what()));
    const std::string message =
        concat("cannot start thread ", threads.size(), " of ", group.size(), ": ", error.what());
    for (int rank = static_cast<int>(threads.size()); rank < group.size(); ++rank) {
      endings.ended(rank);
    }
    endings.keep(std::make_exception_ptr(SystemFailure(message)), message, /*echo=*/false);
  }
  endings.wait(stuck);
  for (std::thread& thread : threads) {
    thread.join();
  }
  endings.rethrow();
}

}  // namespace entrain::engine
