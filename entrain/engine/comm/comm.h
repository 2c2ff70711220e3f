// Communication between ranks: the interface the executor uses, whatever the transport.
//
// Read first: Comm. ThreadComm (thread_comm.h) connects ranks that are threads of one process.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/base/errors.h"

namespace entrain::engine {

// Thrown on ranks that stop because another rank failed; the failing rank throws the cause.
class CommAborted : public SystemFailure {
 public:
  using SystemFailure::SystemFailure;
};

// Names one ordered connection between two ranks; equal on both sides.
struct ChannelKey {
  int source = 0;
  int target = 0;
  int channel = 0;  // Program channel index (one per edge and direction) or a constant below
  auto operator<=>(const ChannelKey&) const = default;
};

inline constexpr int kReportChannel = -1;    // messages between ranks outside the Program
inline constexpr int kGradientChannel = -2;  // gradients sent to the rank that sums them
inline constexpr int kLeastChannel = kGradientChannel;

// A posted receive; wait() returns the tensor.
class PendingReceive {
 public:
  virtual ~PendingReceive() = default;
  // Throws  SystemFailure at the deadline, or with the first error of the failed rank after an
  // abort.
  virtual at::Tensor wait() = 0;
};

// One rank's view of the communicator. All calls except abort() come from the rank's own thread.
//
// Every blocking call has the communicator's deadline. After abort() every blocked and later call
// of every rank throws CommAborted with the first reason.
class Comm {
 public:
  virtual ~Comm() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // Does not block. Messages of a channel arrive in the order sent. `tag` is only checked: a
  // with another tag throws InternalError naming both. The tensor must not change afterwards. If it
  // was moved here, this rank's thread keeps no reference, so another thread always frees it.
  virtual void send(const ChannelKey& channel, std::uint64_t tag, at::Tensor tensor) = 0;
  // Receives are posted in the sender's order per channel. `shape` and dtype follow from the plan
  // and are checked; `options` also names the device on which the tensor is required.
  virtual std::unique_ptr<PendingReceive> post_receive(const ChannelKey& channel,
                                                       std::uint64_t tag,
                                                       std::vector<std::int64_t> shape,
                                                       at::TensorOptions options) = 0;

  // Collectives over `group` (ranks in rising order, this rank among them); every member calls them
  // in the same order. Sums run in rank order, so results are bitwise equal on all ranks and in all
  // runs.
  virtual void all_reduce_sum(at::Tensor& tensor, const std::vector<int>& group) = 0;
  // input: [n * group size] → [n], the slice of this rank.
  virtual at::Tensor reduce_scatter_sum(const at::Tensor& input, const std::vector<int>& group) = 0;
  virtual at::Tensor all_gather(const at::Tensor& input, const std::vector<int>& group) = 0;
  virtual void broadcast(at::Tensor& tensor, int root, const std::vector<int>& group) = 0;
  virtual void barrier(const std::vector<int>& group) = 0;

  // Ends the communicator for all ranks; the first reason wins. May come from any thread.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace entrain::engine
