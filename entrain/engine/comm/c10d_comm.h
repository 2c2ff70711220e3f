// Communication between ranks that are processes, over a c10d process group made in Python.
//
// Read first: C10dComm. It uses only the group's send and receive, on CPU tensors, and needs from
// the backend what Gloo has: tags that separate channels. Tensors of other devices are copied
// through the host or, after connect(), sent over a backend of their own.
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
// - A message is a header (tag, number, dtype, shape; a small tensor too) followed by the tensor's
//   memory, which is kept until the receiver has it. Both receives are posted at once, so ranks
//   never exchange shapes.
// - Collectives are built of messages and add in rank order, so results are bitwise those of
//   ThreadComm.
// - A wait that passes the deadline, or whose peer is gone, throws SystemFailure naming rank, peer
//   and channel.
// - abort() publishes its reason in the group's store, which every rank polls ten times a second;
//   the first reason wins.
//
// A rank cannot send to itself.
class C10dComm : public Comm {
 public:
  // The group that Python registered under `group_name`, which must outlive this object.
  //
  // Requires  deadline > 0; it applies to every single wait.
  // Throws    InvalidInput otherwise, or when there is no such group.
  C10dComm(const std::string& group_name, std::chrono::milliseconds deadline);
  // Waits until all sent messages were received, unless the communicator was aborted.
  ~C10dComm() override;

  // From now on tensors between `device`, this rank's, and devices of `peers` are sent directly,
  // over the backends of two more groups (device_links.h), instead of through the host. All ranks
  // call this and name each other as peers; a group of a collective of such tensors must consist
  // of peers. Blocks until they are connected.
  //
  // Throws  InvalidInput if there are no such groups.
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
  // Throws  CommAborted after any rank has aborted. May be called from any thread.
  void check() const;

 private:
  std::shared_ptr<C10dState> state_;
};

}  // namespace entrain::engine
