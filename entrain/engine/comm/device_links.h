// Tensors between the devices of processes, over c10d backends that keep no channels apart: NCCL.
//
// For c10d_messages.cc alone: this header is heavy.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace entrain::engine {

// What goes from one rank to another comes in the order in which it was sent, and what goes the
// other way never stands before it: a pair of ranks has one connection in each of two groups, for
// messages to the higher rank and to the lower. On one connection of a pair, sends of both would
// wait for receives that stand behind sends.
class DeviceLinks {
 public:
  using Clock = std::chrono::steady_clock;

  // Connects this rank with each of `peers`, which call this too; blocks until all are there. Pairs
  // connect in the order of their lower, then higher rank, so that nobody waits in a circle: the
  // backend makes a connection where both sides first use it.
  //
  // groups: names of two c10d groups of all ranks with a backend for `device`'s kind; connecting
  // has
  //         their timeout. `deadline`: of every transfer afterwards.
  // Throws  InvalidInput where there are no such groups.
  DeviceLinks(at::Device device,
              const std::vector<std::string>& groups,
              std::vector<int> peers,
              std::chrono::milliseconds deadline);
  // Waits until what was sent is gone, no longer than the deadline, unless aborted.
  ~DeviceLinks();
  DeviceLinks(const DeviceLinks&) = delete;
  DeviceLinks& operator=(const DeviceLinks&) = delete;

  // Whether tensors of `device` go over them to and from that rank.
  [[nodiscard]] bool carry(at::Device device, int peer) const;

  // For the rank's thread. Neither blocks; a sent tensor is kept until it is gone.
  void send(int target, at::Tensor tensor);
  // Requires  the next message from there to be on its way, or the device waits for it. `tensor` is
  // whole behind work->wait(), for whatever its device does then.
  c10::intrusive_ptr<c10d::Work> receive(int source, at::Tensor& tensor, const std::string& what);

  // For any thread: a transfer that began a deadline ago and is not done, or "".
  std::string overdue();
  // For any thread: ends all transfers, now and later.
  void abort();

 private:
  struct Transfer {
    c10::intrusive_ptr<c10d::Work> work;
    at::Tensor sent;  // undefined for what is received
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
  std::mutex mutex_;  // of what follows
  std::list<Transfer> under_way_;
  bool aborted_ = false;
};

}  // namespace entrain::engine
