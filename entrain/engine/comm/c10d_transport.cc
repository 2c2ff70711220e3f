#include "entrain/engine/comm/c10d_transport.h"

#include <exception>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/comm/torch_errors.h"

namespace entrain::engine {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{50};
// How long a rank that lost a peer waits for a published reason, and how long a rank that
// publishes one waits for the store.
constexpr milliseconds kGrace{1500};
// How long a rank at its deadline waits for the others' published waits.
constexpr milliseconds kAsking{500};
// The watcher checks deadlines: Gloo's own would close every connection of the process.
constexpr std::chrono::hours kForever{24 * 365};

// The essential part of a transport's message, without its source line and its advice.
std::string short_message(const std::exception& error) {
  std::string text = message_of(error);
  if (text.starts_with("[")) {
    const std::size_t end = text.find("] ");
    text = end == std::string::npos ? text : text.substr(end + 2);
  }
  return text.substr(0, text.find(". "));
}

}  // namespace

C10dTransport::C10dTransport(const std::string& group_name, milliseconds deadline)
    : deadline_(deadline) {
  if (deadline.count() <= 0) {
    throw InvalidInput(
        concat("communicator with a deadline of ", deadline.count(), " ms; at least 1 is needed"));
  }
  c10::intrusive_ptr<c10d::Store> store;
  try {
    group_ = c10d::resolve_process_group(group_name);
    backend_ = group_->getBackend(c10::DeviceType::CPU);
    store = group_->getStore();
  } catch (const std::exception& error) {
    throw InvalidInput(
        concat("no process group '", group_name, "' for CPU tensors: ", short_message(error)));
  }
  rank_ = group_->getRank();
  size_ = group_->getSize();
  watcher_ = std::thread([this] { watch(); });
  drainer_ = std::thread([this] { drain(); });
  board_ = std::make_unique<AbortBoard>(store, [this](const std::string& reason) { stop(reason); });
}

C10dTransport::~C10dTransport() {
  {
    MutexLock lock(mutex_);
    changed_.wait_for(lock.native(), deadline_, [&]() ENTRAIN_REQUIRES(mutex_) {
      return aborted_ || sent_.empty();
    });
    closing_ = true;
    if (!sent_.empty()) {
      sent_.front()->abort();
    }
  }
  changed_.notify_all();
  watcher_.join();
  drainer_.join();
}

void C10dTransport::send(int target, int tag, at::Tensor tensor, const std::string& what) {
  check_alive();
  std::vector<at::Tensor> tensors;
  tensors.push_back(std::move(tensor));
  WorkPtr work;
  try {
    work = backend_->send(tensors, target, tag);
  } catch (const std::exception& error) {
    fail(target, what, short_message(error));
  }
  tensors.clear();  // before the drainer sees the work, which then holds the last reference
  {
    const MutexLock lock(mutex_);
    sent_.push_back(std::move(work));
  }
  changed_.notify_all();
}

WorkPtr C10dTransport::receive(int source, int tag, at::Tensor& tensor, const std::string& what) {
  check_alive();
  std::vector<at::Tensor> tensors = {tensor};
  try {
    return backend_->recv(tensors, source, tag);
  } catch (const std::exception& error) {
    fail(source, what, short_message(error));
  }
}

void C10dTransport::await(const WorkPtr& work, int peer, const std::string& what) {
  {
    const MutexLock lock(mutex_);
    awaited_ = work;
    awaited_peer_ = peer;
    awaited_what_ = what;
    awaited_since_ = Clock::now();
    expired_ = false;
  }
  bool done = false;
  std::string error;
  try {
    check_alive();
    done = work->wait(kForever);
  } catch (const CommAborted&) {
  } catch (const std::exception& failure) {
    error = short_message(failure);
  }
  bool expired = false;
  {
    const MutexLock lock(mutex_);
    awaited_ = nullptr;
    expired = expired_;
  }
  if (done) {
    return;
  }
  check_alive();
  if (expired) {
    const std::string end = end_of_waits_from(peer);
    check_alive();
    throw SystemFailure(
        concat("rank ", rank_, ": no ", what, " within ", format_duration(deadline_), end));
  }
  fail(peer, what, error);
}

// "; rank 0 waits for rank 1 (…); rank 1 is not known to wait", or "" if unknown.
std::string C10dTransport::end_of_waits_from(int peer) {
  const auto waits = board_->waits_from(peer, kAsking);
  return waits.has_value() ? "; " + end_of_waits(*waits, peer) : "";
}

// A peer that failed publishes its reason before it exits; a killed one does not.
void C10dTransport::fail(int peer, const std::string& what, const std::string& error) {
  {
    MutexLock lock(mutex_);
    changed_.wait_for(lock.native(), kGrace, [&] { return aborted_.load(); });
  }
  check_alive();
  throw SystemFailure(
      concat("rank ",
             rank_,
             ": lost rank ",
             peer,
             " at ",
             what,
             " (",
             error.empty() ? "connection closed" : error,
             "): its process ended without reporting an error, or the network failed"));
}

void C10dTransport::abort(const std::string& reason) {
  if (stop(reason)) {
    board_->publish(reason, kGrace);
  }
}

bool C10dTransport::stop(const std::string& reason) {
  std::function<void()> stopped;
  {
    const MutexLock lock(mutex_);
    if (aborted_) {
      return false;
    }
    reason_ = reason;
    aborted_ = true;
    if (awaited_ != nullptr) {
      awaited_->abort();
    }
    if (!sent_.empty()) {
      sent_.front()->abort();
    }
    stopped = stopped_;
  }
  changed_.notify_all();
  if (stopped) {
    stopped();
  }
  return true;
}

void C10dTransport::watch_also(std::function<std::string()> overdue,
                               std::function<void()> stopped) {
  const MutexLock lock(mutex_);
  overdue_ = std::move(overdue);
  stopped_ = std::move(stopped);
}

void C10dTransport::check_alive() {
  if (aborted_) {
    const MutexLock lock(mutex_);
    throw CommAborted("stopped because another rank failed: " + reason_);
  }
}

// For the watcher's thread: publishes a wait that lasts half a deadline, and its end,
// unless that was the deadline. Called without the mutex, which the board's thread may need.
void C10dTransport::tell_waits() {
  MutexLock lock(mutex_);
  const bool late = awaited_ != nullptr && Clock::now() - awaited_since_ > deadline_ / 2;
  if (late && told_ != awaited_since_) {
    told_ = awaited_since_;
    const Wait wait{awaited_peer_, awaited_what_};
    lock.unlock();
    board_->publish_wait(rank_, wait);
  } else if (!late && told_.has_value() && !expired_) {
    told_.reset();
    lock.unlock();
    board_->publish_wait(rank_, std::nullopt);
  }
}

void C10dTransport::watch() {
  MutexLock lock(mutex_);
  for (int tick = 0; !closing_; ++tick) {
    changed_.wait_for(lock.native(), kTick, [&]() ENTRAIN_REQUIRES(mutex_) { return closing_; });
    if (awaited_ != nullptr && !expired_ && Clock::now() - awaited_since_ > deadline_) {
      expired_ = true;
      awaited_->abort();
    }
    if (tick % 2 == 0 && !closing_ && !aborted_) {
      const auto overdue = overdue_;
      lock.unlock();
      tell_waits();
      if (const std::string what = overdue ? overdue() : ""; !what.empty()) {
        abort(
            concat("rank ", rank_, ": not all of ", what, " within ", format_duration(deadline_)));
      }
      lock.lock();
    }
  }
}

void C10dTransport::drain() {
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(lock.native(),
                  [&]() ENTRAIN_REQUIRES(mutex_) { return closing_ || !sent_.empty(); });
    if (closing_ || aborted_) {
      sent_.clear();
      if (closing_) {
        return;
      }
      continue;
    }
    WorkPtr work = sent_.front();
    lock.unlock();
    try {
      work->wait(kForever);
    } catch (const std::exception&) {
      // The peer has exited: the wait for it reports that.
    }
    lock.lock();
    if (!sent_.empty()) {
      sent_.pop_front();
    }
    lock.unlock();
    work = nullptr;
    changed_.notify_all();
    lock.lock();
  }
}

}  // namespace entrain::engine
