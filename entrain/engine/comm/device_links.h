// Tensors between the devices of processes, over c10d backends without tags (NCCL).
//
// Include it in c10d_messages.cc only: it is expensive to compile.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "entrain/core/base/thread_safety.h"

namespace entrain::engine {

// Messages from one rank to another arrive in the order sent and never wait for messages in the
// other direction: a pair of ranks has one connection in each of two groups, one for messages to
// the higher rank and one for messages to the lower. On a single connection, sends of both ranks
// would wait for receives that are queued after sends.
class DeviceLinks {
 public:
  using Clock = std::chrono::steady_clock;

  // Connects this rank with each of `peers`, which call this too; blocks until all are connected.
  // Pairs connect in the order of their lower, then higher rank, so that no cycle of waits arises:
  // the backend makes a connection when both sides first use it.
  //
  // groups: names of two c10d groups of all ranks with a backend for `device`'s kind; connecting
  //         has their timeout. `deadline`: of every transfer afterwards.
  // Throws  InvalidInput where there are no such groups.
  DeviceLinks(at::Device device,
              const std::vector<std::string>& groups,
              std::vector<int> peers,
              std::chrono::milliseconds deadline);
  // Waits until all sent tensors were received, at most the deadline, unless aborted.
  ~DeviceLinks();
  DeviceLinks(const DeviceLinks&) = delete;
  DeviceLinks& operator=(const DeviceLinks&) = delete;

  // Whether tensors of `device` use links to and from that rank.
  [[nodiscard]] bool carry(at::Device device, int peer) const;

  // Called by the rank's thread. Neither blocks; a sent tensor is kept until it was received.
  void send(int target, at::Tensor tensor);
  // Requires  the next message from there is being sent, else the device waits for it. `tensor` is
  // complete after work->wait() for later work on its device.
  c10::intrusive_ptr<c10d::Work> receive(int source, at::Tensor& tensor, const std::string& what);

  // For any thread: a transfer started more than a deadline ago and not done, or "".
  std::string overdue();
  // For any thread: ends all current and later transfers.
  void abort();

 private:
  struct Transfer {
    c10::intrusive_ptr<c10d::Work> work;
    at::Tensor sent;  // undefined for a receive
    Clock::time_point begun;
    std::string what;
  };

  void connect(int peer);
  bool sends();
  c10d::Backend& backend_to(int target);
  c10d::Backend& backend_from(int source);
  void release_done();

  at::Device device_;
  std::chrono::milliseconds deadline_;
  int rank_ = 0;
  std::vector<int> peers_;  // rising
  c10::intrusive_ptr<c10d::Backend> rising_;
  c10::intrusive_ptr<c10d::Backend> falling_;
  Mutex mutex_;
  std::list<Transfer> under_way_ ENTRAIN_GUARDED_BY(mutex_);
  bool aborted_ ENTRAIN_GUARDED_BY(mutex_) = false;
};

}  // namespace entrain::engine
