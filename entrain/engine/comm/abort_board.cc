#include "entrain/engine/comm/abort_board.h"

#include <condition_variable>
#include <exception>
#include <utility>

#include "entrain/core/base/text.h"
#include "entrain/core/base/thread_safety.h"

namespace entrain::engine {
namespace {

using std::chrono::milliseconds;

constexpr const char* kReasonKey = "entrain/abort";
constexpr milliseconds kPeriod{100};
constexpr milliseconds kJoinPatience{1500};  // the thread must end within this time

// The reason that a rank published, or "".
std::string look(c10d::Store& store) {
  try {
    return store.check({kReasonKey}) ? store.get_to_str(kReasonKey) : "";
  } catch (const std::exception&) {
    return "";  // the store's host has ended; connections to its ranks close as well
  }
}

void write(c10d::Store& store, const std::string& reason) {
  try {
    store.compareSet(kReasonKey, "", reason);
  } catch (const std::exception&) {
    // Without the store the others still see this rank's connections close.
  }
}

std::string key_of_wait(int rank) {
  return concat("entrain/wait/", rank);
}

void write(c10d::Store& store, int rank, const std::optional<Wait>& wait) {
  try {
    store.set(key_of_wait(rank), wait.has_value() ? concat(wait->peer, " ", wait->what) : "");
  } catch (const std::exception&) {
    // Then the others do not know what this rank waits for.
  }
}

std::optional<Wait> read_wait(c10d::Store& store, int rank) {
  const std::string key = key_of_wait(rank);
  const std::string text = store.check({key}) ? store.get_to_str(key) : "";
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) {
    return std::nullopt;
  }
  return Wait{std::stoi(text.substr(0, space)), text.substr(space + 1)};
}

// Nothing if the store fails: half a chain would end at the wrong rank.
std::optional<std::map<int, Wait>> read_waits(c10d::Store& store, int rank) {
  std::map<int, Wait> waits;
  try {
    while (!waits.contains(rank)) {
      const std::optional<Wait> wait = read_wait(store, rank);
      if (!wait.has_value()) {
        break;
      }
      waits.emplace(rank, *wait);
      rank = wait->peer;
    }
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return waits;
}

}  // namespace

struct AbortBoard::Shared {
  c10::intrusive_ptr<c10d::Store> store;  // used by the thread only
  std::function<void(const std::string&)> found;

  Mutex mutex;  // held while found() runs, too
  std::condition_variable changed;
  std::string own ENTRAIN_GUARDED_BY(mutex);  // to be published
  // There is a reason, or publishing was tried: stop polling.
  bool settled ENTRAIN_GUARDED_BY(mutex) = false;
  std::map<int, std::optional<Wait>> unpublished_waits
      ENTRAIN_GUARDED_BY(mutex);                       // [rank], not yet published
  std::optional<int> asked ENTRAIN_GUARDED_BY(mutex);  // where the requested chain begins
  std::optional<std::map<int, Wait>> answer ENTRAIN_GUARDED_BY(mutex);  // the requested chain
  bool closing ENTRAIN_GUARDED_BY(mutex) = false;
  bool ended ENTRAIN_GUARDED_BY(mutex) = false;

  [[nodiscard]] bool has_work() const ENTRAIN_REQUIRES(mutex) {
    return !own.empty() || !unpublished_waits.empty() || asked.has_value();
  }

  void run() {
    try {
      store = store->clone();
    } catch (const std::exception&) {
      // Then the connection is shared with the group.
    }
    MutexLock lock(mutex);
    while (!closing) {
      changed.wait_for(lock.native(), kPeriod, [&]() ENTRAIN_REQUIRES(mutex) {
        return closing || (!settled && has_work());
      });
      if (settled) {
        continue;
      }
      const std::string reason = own;
      const auto waits = std::exchange(unpublished_waits, {});
      const std::optional<int> begin = std::exchange(asked, std::nullopt);
      lock.unlock();
      for (const auto& [rank, wait] : waits) {
        write(*store, rank, wait);
      }
      std::optional<std::map<int, Wait>> chain;
      if (begin.has_value()) {
        chain = read_waits(*store, *begin);
      }
      std::string seen;
      if (!reason.empty()) {
        write(*store, reason);
      } else {
        seen = look(*store);
      }
      lock.lock();
      settled = !reason.empty() || !seen.empty();
      if (chain.has_value()) {
        answer = std::move(chain);
      }
      changed.notify_all();
      if (!seen.empty() && own.empty() && !closing) {
        found(seen);
      }
    }
    ended = true;
    changed.notify_all();
  }
};

AbortBoard::AbortBoard(const c10::intrusive_ptr<c10d::Store>& store,
                       std::function<void(const std::string&)> found)
    : shared_(std::make_shared<Shared>()) {
  shared_->store = store;
  shared_->found = std::move(found);
  thread_ = std::thread([shared = shared_] { shared->run(); });
}

AbortBoard::~AbortBoard() {
  MutexLock lock(shared_->mutex);
  shared_->closing = true;
  shared_->changed.notify_all();
  const bool ended = shared_->changed.wait_for(
      lock.native(), kJoinPatience, [&]() ENTRAIN_REQUIRES(shared_->mutex) {
        return shared_->ended;
      });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void AbortBoard::publish(const std::string& reason, milliseconds patience) {
  MutexLock lock(shared_->mutex);
  shared_->own = reason;
  shared_->changed.notify_all();
  shared_->changed.wait_for(
      lock.native(), patience, [&]() ENTRAIN_REQUIRES(shared_->mutex) { return shared_->settled; });
}

void AbortBoard::publish_wait(int rank, std::optional<Wait> wait) {
  const MutexLock lock(shared_->mutex);
  shared_->unpublished_waits[rank] = std::move(wait);
  shared_->changed.notify_all();
}

std::optional<std::map<int, Wait>> AbortBoard::waits_from(int rank, milliseconds patience) {
  MutexLock lock(shared_->mutex);
  shared_->asked = rank;
  shared_->answer.reset();
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock.native(), patience, [&]() ENTRAIN_REQUIRES(shared_->mutex) {
    return shared_->settled || shared_->answer.has_value();
  });
  return std::exchange(shared_->answer, std::nullopt);
}

}  // namespace entrain::engine
