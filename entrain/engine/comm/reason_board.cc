#include "entrain/engine/comm/reason_board.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

namespace entrain::engine {
namespace {

using std::chrono::milliseconds;

constexpr const char* kReasonKey = "entrain/abort";
constexpr milliseconds kPeriod{100};
constexpr milliseconds kFarewell{1500};  // that the thread has to end in

// The reason that some rank left, or "".
std::string look(c10d::Store& store) {
  try {
    return store.check({kReasonKey}) ? store.get_to_str(kReasonKey) : "";
  } catch (const std::exception&) {
    return "";  // the store's host has ended; connections of ranks there will close as well
  }
}

void write(c10d::Store& store, const std::string& reason) {
  try {
    store.compareSet(kReasonKey, "", reason);
  } catch (const std::exception&) {
    // Without the store the others see this rank's connections close.
  }
}

}  // namespace

struct ReasonBoard::Shared {
  c10::intrusive_ptr<c10d::Store> store;  // the thread's alone
  std::function<void(const std::string&)> found;

  std::mutex mutex;  // of everything below, and held while found() runs
  std::condition_variable changed;
  std::string own;       // to be left there
  bool settled = false;  // there is a reason, or it was tried: nothing to look for
  bool closing = false;
  bool ended = false;

  void run() {
    try {
      store = store->clone();
    } catch (const std::exception&) {
      // It is shared with the group then.
    }
    std::unique_lock lock(mutex);
    while (!closing) {
      changed.wait_for(lock, kPeriod, [&] { return closing || (!own.empty() && !settled); });
      if (settled) {
        continue;
      }
      const std::string reason = own;
      lock.unlock();
      std::string seen;
      if (!reason.empty()) {
        write(*store, reason);
      } else {
        seen = look(*store);
      }
      lock.lock();
      settled = !reason.empty() || !seen.empty();
      changed.notify_all();
      if (!seen.empty() && own.empty() && !closing) {
        found(seen);
      }
    }
    ended = true;
    changed.notify_all();
  }
};

ReasonBoard::ReasonBoard(const c10::intrusive_ptr<c10d::Store>& store,
                         std::function<void(const std::string&)> found)
    : shared_(std::make_shared<Shared>()) {
  shared_->store = store;
  shared_->found = std::move(found);
  thread_ = std::thread([shared = shared_] { shared->run(); });
}

ReasonBoard::~ReasonBoard() {
  std::unique_lock lock(shared_->mutex);
  shared_->closing = true;
  shared_->changed.notify_all();
  const bool ended = shared_->changed.wait_for(lock, kFarewell, [&] { return shared_->ended; });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void ReasonBoard::leave(const std::string& reason, milliseconds patience) {
  std::unique_lock lock(shared_->mutex);
  shared_->own = reason;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, patience, [&] { return shared_->settled; });
}

}  // namespace entrain::engine
