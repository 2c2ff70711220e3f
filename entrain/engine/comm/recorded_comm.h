// A communicator that records every call in its rank's log, whatever the transport.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "entrain/core/base/call_log.h"

#include "entrain/engine/comm/comm.h"

namespace entrain::engine {

// Sets the final state of a rank that `error` ends: stopped by another's failure, lost while
// waiting, mismatched with what others sent, or failed itself. Call it before the communicator is
// aborted, so that no dump shows the others' end without its cause.
void note_failure(CallLog& log, const std::exception& error, const std::string& message);

// Forwards every call. It records sends, waits for receives (not their posting) and collectives,
// each with its number on its channel or in its group, so that the calls of several ranks can be
// aligned.
class RecordedComm : public Comm {
 public:
  // Requires  both outlive this object and its pending receives.
  RecordedComm(Comm& inner, CallLog& log) : inner_(inner), log_(log) {}

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
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
  void abort(const std::string& reason) override { inner_.abort(reason); }

 private:
  LoggedCall message(const char* what, const ChannelKey& channel, int peer, std::uint64_t tag);
  LoggedCall collective(const char* what, const std::vector<int>& group);

  Comm& inner_;
  CallLog& log_;
  std::map<ChannelKey, std::int64_t> messages_;  // sent, or posted to receive
  std::map<std::vector<int>, std::int64_t> collectives_;
};

}  // namespace entrain::engine
