// Sends and receives of one process over a c10d group, with deadlines, and the word of an abort.
//
// For c10d_comm.cc alone: this header is heavy.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "entrain/engine/comm/reason_board.h"

namespace entrain::engine {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class C10dTransport {
 public:
  // Throws  InvalidInput when there is no such group or the deadline is not positive.
  C10dTransport(const std::string& group_name, std::chrono::milliseconds deadline);
  ~C10dTransport();
  C10dTransport(const C10dTransport&) = delete;
  C10dTransport& operator=(const C10dTransport&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  // Does not block; keeps the tensor until the peer has it, and a thread of its own lets go of it.
  // `tag` >= 0 keeps channels apart. `what` names the message where it fails. Requires  a
  // contiguous CPU tensor.
  void send(int target, int tag, at::Tensor tensor, const std::string& what);
  // Posts a receive into `tensor`, to be waited for with await().
  WorkPtr receive(int source, int tag, at::Tensor& tensor, const std::string& what);
  // Throws  SystemFailure at the deadline or when `peer` is gone, CommAborted after an abort.
  void await(const WorkPtr& work, int peer, const std::string& what);

  void abort(const std::string& reason);
  void check_alive();

  // Another way for messages, to be watched like this one. overdue(): what of it is not there
  // within the deadline, or ""; where there is something, everything stops. stopped(): called once
  // when it does. Both on other threads, until this object's end.
  void watch_also(std::function<std::string()> overdue, std::function<void()> stopped);

 private:
  using Clock = std::chrono::steady_clock;

  void tell_waits();
  [[nodiscard]] std::string end_of_waits_from(int peer);
  [[noreturn]] void fail(int peer, const std::string& what, const std::string& error);
  // Takes the reason and wakes whatever waits; false where there was one already.
  bool stop(const std::string& reason);
  void watch();
  void drain();

  std::chrono::milliseconds deadline_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  int rank_ = 0;
  int size_ = 0;

  std::mutex mutex_;  // of everything below
  std::condition_variable changed_;
  std::string reason_;
  std::atomic<bool> aborted_{false};
  WorkPtr awaited_;  // by the rank's thread
  int awaited_peer_ = 0;
  std::string awaited_what_;
  Clock::time_point awaited_since_;
  bool expired_ = false;      // the watcher ended that wait
  std::deque<WorkPtr> sent_;  // not known to be taken; the first is being waited for
  bool closing_ = false;
  std::function<std::string()> overdue_;
  std::function<void()> stopped_;
  std::optional<Clock::time_point> told_;  // since when the wait lasts that others know of
  std::thread watcher_;                    // of the deadline; waits for nothing else
  std::thread drainer_;                    // of sent_
  std::unique_ptr<ReasonBoard> board_;     // the first to go, since it stops the others
};

}  // namespace entrain::engine
