#include "entrain/engine/profiler/single_rank.h"

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "entrain/core/base/errors.h"

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/models/tensor_group.h"

namespace entrain::engine {
namespace {

class SingleRank : public Comm {
 public:
  explicit SingleRank(int num_ranks) : num_ranks_(num_ranks) {}

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return num_ranks_; }

  void send(const ChannelKey& /*channel*/, std::uint64_t /*tag*/, at::Tensor /*tensor*/) override {
    ENTRAIN_INVARIANT(false, "a single rank has no peer to send to");
  }
  std::unique_ptr<PendingReceive> post_receive(const ChannelKey& /*channel*/,
                                               std::uint64_t /*tag*/,
                                               std::vector<std::int64_t> /*shape*/,
                                               at::TensorOptions /*options*/) override {
    ENTRAIN_INVARIANT(false, "a single rank has no peer to receive from");
  }

  void all_reduce_sum(at::Tensor& /*tensor*/, const std::vector<int>& /*group*/) override {}
  at::Tensor reduce_scatter_sum(const at::Tensor& input, const std::vector<int>& group) override {
    return input.detach().narrow(0, 0, input.numel() / std::ssize(group)).clone();
  }
  at::Tensor all_gather(const at::Tensor& input, const std::vector<int>& group) override {
    return input.detach().repeat({std::ssize(group)});
  }
  void broadcast(at::Tensor& /*tensor*/, int /*root*/, const std::vector<int>& /*group*/) override {
  }
  void barrier(const std::vector<int>& /*group*/) override {}
  void abort(const std::string& /*reason*/) override {}

 private:
  int num_ranks_;
};

struct SingleGroup {
  explicit SingleGroup(int num_ranks) : comm(num_ranks) {
    group.comm = &comm;
    group.ranks.resize(static_cast<std::size_t>(num_ranks));
    std::iota(group.ranks.begin(), group.ranks.end(), 0);
  }
  SingleGroup(const SingleGroup&) = delete;
  SingleGroup& operator=(const SingleGroup&) = delete;
  SingleRank comm;
  TensorGroup group;
};

}  // namespace

TensorGroupPtr single_rank(int num_ranks) {
  const auto lone = std::make_shared<const SingleGroup>(num_ranks);
  return {lone, &lone->group};
}

}  // namespace entrain::engine
