// A communicator that hands every call on to another, for tests that change one of them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "entrain/engine/comm/comm.h"

namespace entrain::oracle {

class ForwardingComm : public engine::Comm {
 public:
  // Requires  `comm` outlives this object.
  explicit ForwardingComm(engine::Comm& comm) : comm_(comm) {}
  [[nodiscard]] int rank() const override { return comm_.rank(); }
  [[nodiscard]] int size() const override { return comm_.size(); }
  void send(const engine::ChannelKey& channel, std::uint64_t tag, at::Tensor tensor) override {
    comm_.send(channel, tag, std::move(tensor));
  }
  std::unique_ptr<engine::PendingReceive> post_receive(const engine::ChannelKey& channel,
                                                       std::uint64_t tag,
                                                       std::vector<std::int64_t> shape,
                                                       at::TensorOptions options) override {
    return comm_.post_receive(channel, tag, std::move(shape), options);
  }
  void all_reduce_sum(at::Tensor& tensor, const std::vector<int>& group) override {
    comm_.all_reduce_sum(tensor, group);
  }
  at::Tensor reduce_scatter_sum(const at::Tensor& input, const std::vector<int>& group) override {
    return comm_.reduce_scatter_sum(input, group);
  }
  at::Tensor all_gather(const at::Tensor& input, const std::vector<int>& group) override {
    return comm_.all_gather(input, group);
  }
  void broadcast(at::Tensor& tensor, int root, const std::vector<int>& group) override {
    comm_.broadcast(tensor, root, group);
  }
  void barrier(const std::vector<int>& group) override { comm_.barrier(group); }
  void abort(const std::string& reason) override { comm_.abort(reason); }

 private:
  engine::Comm& comm_;
};

}  // namespace entrain::oracle
