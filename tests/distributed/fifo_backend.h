// A c10d backend for stand-in devices that is as awkward as NCCL: two ranks have one connection,
// made where both first use it; what they ask of it happens in that order, both ways, whatever the
// tags; a send waits for its receive. So what would hang there hangs here.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace entrain::oracle {

class FifoBackend : public c10d::Backend {
 public:
  // Carried by `host`, which nobody else uses.
  explicit FifoBackend(c10::intrusive_ptr<c10d::Backend> host);
  ~FifoBackend() override;

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors,
                                      int target,
                                      int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors,
                                      int source,
                                      int tag) override;
  void abort() override;

  // From now on what is sent does not arrive.
  void lose() { losing_ = true; }

 private:
  class Connection;
  Connection& connection_to(int peer);

  c10::intrusive_ptr<c10d::Backend> host_;
  std::atomic<bool> losing_{false};
  std::mutex mutex_;  // of connections_
  std::map<int, std::unique_ptr<Connection>> connections_;
};

}  // namespace entrain::oracle
