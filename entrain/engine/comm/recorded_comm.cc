#include "entrain/engine/comm/recorded_comm.h"

#include <utility>

#include "entrain/core/base/errors.h"

namespace entrain::engine {
namespace {

class RecordedReceive : public PendingReceive {
 public:
  RecordedReceive(std::unique_ptr<PendingReceive> inner, CallLog& log, LoggedCall call)
      : inner_(std::move(inner)), log_(log), call_(std::move(call)) {}

  at::Tensor wait() override {
    const LoggedScope scope(&log_, call_);
    return inner_->wait();
  }

 private:
  std::unique_ptr<PendingReceive> inner_;
  CallLog& log_;
  LoggedCall call_;
};

}  // namespace

void note_failure(CallLog& log, const std::exception& error, const std::string& message) {
  RankState state = RankState::kFailed;
  if (dynamic_cast<const CommAborted*>(&error) != nullptr) {
    state = RankState::kStopped;
  } else if (log.in_communication()) {
    if (dynamic_cast<const SystemFailure*>(&error) != nullptr) {
      state = RankState::kLost;
    } else if (dynamic_cast<const InternalError*>(&error) != nullptr) {
      state = RankState::kMismatch;
    }
  }
  log.set_state(state, message);
}

LoggedCall RecordedComm::message(const char* what,
                                 const ChannelKey& channel,
                                 int peer,
                                 std::uint64_t tag) {
  LoggedCall call;
  call.what = what;
  call.communication = true;
  call.peer = peer;
  call.channel = channel.channel;
  call.tag = tag;
  call.number = messages_[channel]++;
  return call;
}

LoggedCall RecordedComm::collective(const char* what, const std::vector<int>& group) {
  LoggedCall call;
  call.what = what;
  call.communication = true;
  call.group = group;
  call.number = collectives_[group]++;
  return call;
}

void RecordedComm::send(const ChannelKey& channel, std::uint64_t tag, at::Tensor tensor) {
  const LoggedScope scope(&log_, message("send", channel, channel.target, tag));
  inner_.send(channel, tag, std::move(tensor));
}

std::unique_ptr<PendingReceive> RecordedComm::post_receive(const ChannelKey& channel,
                                                           std::uint64_t tag,
                                                           std::vector<std::int64_t> shape,
                                                           at::TensorOptions options) {
  LoggedCall call = message("receive", channel, channel.source, tag);
  std::unique_ptr<PendingReceive> posted;
  try {
    posted = inner_.post_receive(channel, tag, std::move(shape), options);
  } catch (...) {
    log_.begin(std::move(call));  // never finished: that is where the rank failed
    throw;
  }
  return std::make_unique<RecordedReceive>(std::move(posted), log_, std::move(call));
}

void RecordedComm::all_reduce_sum(at::Tensor& tensor, const std::vector<int>& group) {
  const LoggedScope scope(&log_, collective("all_reduce_sum", group));
  inner_.all_reduce_sum(tensor, group);
}

at::Tensor RecordedComm::reduce_scatter_sum(const at::Tensor& input,
                                            const std::vector<int>& group) {
  const LoggedScope scope(&log_, collective("reduce_scatter_sum", group));
  return inner_.reduce_scatter_sum(input, group);
}

at::Tensor RecordedComm::all_gather(const at::Tensor& input, const std::vector<int>& group) {
  const LoggedScope scope(&log_, collective("all_gather", group));
  return inner_.all_gather(input, group);
}

void RecordedComm::broadcast(at::Tensor& tensor, int root, const std::vector<int>& group) {
  const LoggedScope scope(&log_, collective("broadcast", group));
  inner_.broadcast(tensor, root, group);
}

void RecordedComm::barrier(const std::vector<int>& group) {
  const LoggedScope scope(&log_, collective("barrier", group));
  inner_.barrier(group);
}

}  // namespace entrain::engine
