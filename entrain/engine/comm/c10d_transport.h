// Sends and receives of one process over a c10d group, with deadlines and abort reasons.
//
// Include it in c10d_comm.cc only: it is expensive to compile.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "entrain/core/base/thread_safety.h"

#include "entrain/engine/comm/abort_board.h"

namespace entrain::engine {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class C10dTransport {
 public:
  // Throws  InvalidInput if there is no such group or the deadline is not positive.
  C10dTransport(const std::string& group_name, std::chrono::milliseconds deadline);
  ~C10dTransport();
  C10dTransport(const C10dTransport&) = delete;
  C10dTransport& operator=(const C10dTransport&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  // Does not block. Keeps the tensor until the peer has it; a separate thread then releases it.
  // `tag` >= 0 separates channels. `what` names the message in errors. Requires  a
  // contiguous CPU tensor.
  void send(int target, int tag, at::Tensor tensor, const std::string& what);
  // Posts a receive into `tensor`; await() waits for it.
  WorkPtr receive(int source, int tag, at::Tensor& tensor, const std::string& what);
  // Throws  SystemFailure at the deadline or when `peer` has exited, CommAborted after an abort.
  void await(const WorkPtr& work, int peer, const std::string& what);

  void abort(const std::string& reason);
  void check_alive();

  // Watches another transport of messages as well. overdue(): the transfer that missed the
  // deadline, or ""; if there is one, everything stops. stopped(): called once when it does.
  // Both are called on other threads, until this object's end.
  void watch_also(std::function<std::string()> overdue, std::function<void()> stopped);

 private:
  using Clock = std::chrono::steady_clock;

  void tell_waits();
  [[nodiscard]] std::string end_of_waits_from(int peer);
  [[noreturn]] void fail(int peer, const std::string& what, const std::string& error);
  // Stores the reason and wakes all waiting calls; false if there was a reason already.
  bool stop(const std::string& reason);
  void watch();
  void drain();

  std::chrono::milliseconds deadline_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  int rank_ = 0;
  int size_ = 0;

  Mutex mutex_;
  std::condition_variable changed_;
  std::string reason_ ENTRAIN_GUARDED_BY(mutex_);
  std::atomic<bool> aborted_{false};            // set under the mutex
  WorkPtr awaited_ ENTRAIN_GUARDED_BY(mutex_);  // by the rank's thread
  int awaited_peer_ ENTRAIN_GUARDED_BY(mutex_) = 0;
  std::string awaited_what_ ENTRAIN_GUARDED_BY(mutex_);
  Clock::time_point awaited_since_ ENTRAIN_GUARDED_BY(mutex_);
  bool expired_ ENTRAIN_GUARDED_BY(mutex_) = false;  // the watcher ended that wait
  // Not known to be received; the drainer waits for the first.
  std::deque<WorkPtr> sent_ ENTRAIN_GUARDED_BY(mutex_);
  bool closing_ ENTRAIN_GUARDED_BY(mutex_) = false;
  std::function<std::string()> overdue_ ENTRAIN_GUARDED_BY(mutex_);
  std::function<void()> stopped_ ENTRAIN_GUARDED_BY(mutex_);
  // Start of the wait that this rank has published.
  std::optional<Clock::time_point> told_ ENTRAIN_GUARDED_BY(mutex_);
  std::thread watcher_;                // checks the deadline; never blocks
  std::thread drainer_;                // releases sent_
  std::unique_ptr<AbortBoard> board_;  // destroyed first, since it stops the others
};

}  // namespace entrain::engine
