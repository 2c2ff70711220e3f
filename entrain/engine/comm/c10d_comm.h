// Communication between ranks that are processes, over a c10d process group made in Python.
//
// Read first: C10dComm. It uses the group's send and receive alone, on CPU tensors, and needs of
// the backend what Gloo has: tags that keep channels apart. Tensors of other devices go by way of
// the host, or after connect() over a backend of theirs.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "entrain/engine/comm/comm.h"

namespace entrain::engine {

class C10dState;

// One process's rank of the group.
//
// - A message is a header (tag, number, dtype, shape; a small tensor too) and the tensor's own
//   memory, which is kept until it has been taken; both receives are posted at once, so no shape is
//   ever asked for.
// - Collectives are built of messages and add in rank order, so results are bitwise those of
//   ThreadComm.
// - A wait that passes the deadline, or whose peer is gone, throws SystemFailure naming rank, peer
//   and channel.
// - abort() leaves its reason in the group's store, where every rank looks ten times a second; the
//   first reason wins.
//
// Not for a rank's messages to itself.
class C10dComm : public Comm {
 public:
  // The group that Python registered under `group_name`, which must outlive this object.
  //
  // Requires  deadline > 0, for every single wait.
  // Throws    InvalidInput otherwise, or when there is no such group.
  C10dComm(const std::string& group_name, std::chrono::milliseconds deadline);
  // Waits until what was sent has been taken, unless the communicator was aborted.
  ~C10dComm() override;

  // From now on tensors of `device`, this rank's, go to `peers` and come from them between devices,
  // over the backends of two more groups (device_links.h), and not by way of the host. All ranks
  // call this, and have each other among their peers; a group of a collective of such tensors is
  // all peers. Blocks until they are connected.
  //
  // Throws  InvalidInput where there are no such groups.
  void connect(at::Device device,
               const std::vector<std::string>& groups,
               const std::vector<int>& peers);

  C10dComm(const C10dComm&) = delete;
  C10dComm& operator=(const C10dComm&) = delete;

  [[nodiscard]] int rank() const override;
  [[nodiscard]] int size() const override;
  void send(const ChannelKey& channel, std::uint64_t tag, at::Tensor tensor) override;
  std::unique_ptr<PendingReceive> post_receive(const ChannelKey& channel,
                                               std::uint64_t tag,
                                               std::vector<std::int64_t> shape,
                                               at::TensorOptions options) override;
  void all_reduce_sum(at::Tensor& tensor, const std::vector<int>& group) override;
  at::Tensor reduce_scatter_sum(const at::Tensor& input, const std::vector<int>& group) override;
  at::Tensor all_gather(const at::Tensor& input, const std::vector<int>& group) override;
  void broadcast(at::Tensor& tensor, int root, const std::vector<int>& group) override;
  void barrier(const std::vector<int>& group) override;
  void abort(const std::string& reason) override;
  // Throws  CommAborted once a rank has aborted. May come from any thread.
  void check() const;

 private:
  std::shared_ptr<C10dState> state_;
};

}  // namespace entrain::engine
