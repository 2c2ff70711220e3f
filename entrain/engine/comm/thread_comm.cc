#include "entrain/engine/comm/thread_comm.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/thread_safety.h"

#include "entrain/engine/comm/names.h"
#include "entrain/engine/comm/unreported.h"
#include "entrain/engine/comm/waits.h"

namespace entrain::engine {
namespace {

using Clock = std::chrono::steady_clock;

struct Message {
  std::uint64_t tag = 0;
  at::Tensor tensor;
};

// One channel's messages that were sent and not yet taken, by sequence number.
struct Mailbox {
  std::uint64_t next_sent = 0;
  std::uint64_t next_posted = 0;
  std::map<std::uint64_t, Message> messages;
};

// One rank's incoming messages; only its own thread waits on them.
struct Inbox {
  Mutex mutex;
  std::condition_variable arrived;
  std::map<ChannelKey, Mailbox> mailboxes ENTRAIN_GUARDED_BY(mutex);
};

// One collective of a group. Each member keeps it until it has read it.
struct ThreadRound {
  explicit ThreadRound(std::size_t members) : inputs(members), here(members, 0) {}
  std::vector<at::Tensor> inputs;  // [member], in rank order
  at::Tensor result;               // shared by all members, uninitialised; if asked for
  std::vector<char> here;          // [member]
  std::size_t present = 0;
  [[nodiscard]] bool complete() const { return present == inputs.size(); }
};

}  // namespace

// Locks: of an inbox, the rounds, the abort reason; never two at once, except that of the
// waits, which is held briefly within others.
class ThreadCommState {
 public:
  ThreadCommState(int num_ranks, std::chrono::milliseconds deadline)
      : deadline_(deadline), inboxes_(at(num_ranks)) {}

  [[nodiscard]] int size() const { return static_cast<int>(inboxes_.size()); }

  void abort(const std::string& reason) {
    {
      const MutexLock lock(reason_mutex_);
      if (aborted_) {
        return;
      }
      reason_ = reason;
      aborted_ = true;
    }
    // Taking each lock once ensures that no thread is between its check and its wait.
    for (Inbox& inbox : inboxes_) {
      { const MutexLock lock(inbox.mutex); }
      inbox.arrived.notify_all();
    }
    { const MutexLock lock(rounds_mutex_); }
    round_done_.notify_all();
  }

  void check_alive() {
    if (aborted_) {
      const MutexLock lock(reason_mutex_);
      throw CommAborted("stopped because another rank failed: " + reason_);
    }
  }

  void send(const ChannelKey& key, std::uint64_t tag, at::Tensor tensor) {
    check_alive();
    Inbox& inbox = inboxes_[at(key.target)];
    {
      const MutexLock lock(inbox.mutex);
      Mailbox& mailbox = inbox.mailboxes[key];
      mailbox.messages.emplace(mailbox.next_sent++, Message{tag, std::move(tensor)});
    }
    inbox.arrived.notify_one();
  }

  std::uint64_t post(const ChannelKey& key) {
    check_alive();
    Inbox& inbox = inboxes_[at(key.target)];
    const MutexLock lock(inbox.mutex);
    return inbox.mailboxes[key].next_posted++;
  }

  Message take(const ChannelKey& key, std::uint64_t sequence) {
    Inbox& inbox = inboxes_[at(key.target)];
    MutexLock lock(inbox.mutex);
    Mailbox& mailbox = inbox.mailboxes[key];
    const auto what = [&] {
      return Wait{key.source, concat("message number ", sequence, " on ", to_text(key))};
    };
    const bool done = wait(
        lock,
        inbox.arrived,
        key.target,
        [&] { return aborted_ || mailbox.messages.count(sequence) > 0; },
        what);
    if (aborted_) {
      lock.unlock();
      check_alive();
    }
    if (!done) {
      throw SystemFailure(concat("rank ",
                                 key.target,
                                 ": no ",
                                 what().what,
                                 " within ",
                                 format_duration(deadline_),
                                 "; ",
                                 end_of_waits_from(key.source)));
    }
    const auto found = mailbox.messages.find(sequence);
    Message message = std::move(found->second);
    mailbox.messages.erase(found);
    return message;
  }

  // Deposits `input` and waits for the whole group.
  std::shared_ptr<const ThreadRound> join(int member,
                                          const std::vector<int>& group,
                                          const at::Tensor& input,
                                          bool with_result = false) {
    check_alive();
    MutexLock lock(rounds_mutex_);
    std::shared_ptr<ThreadRound>& open = open_rounds_[group];
    if (open == nullptr) {
      open = std::make_shared<ThreadRound>(group.size());
      if (with_result) {
        const Unreported unreported;  // freed by the last reader
        open->result = at::empty_like(input, at::MemoryFormat::Contiguous);
      }
    }
    const std::shared_ptr<ThreadRound> round = open;
    round->inputs[at(member)] = input;
    round->here[at(member)] = 1;
    if (++round->present == group.size()) {
      open = nullptr;  // the next collective of this group may start at once
      lock.unlock();
      round_done_.notify_all();
      return round;
    }
    const int rank = group[at(member)];
    const auto what = [&] {
      return Wait{missing_of(*round, group).front(), "collective over ranks " + to_text(group)};
    };
    wait(
        lock, round_done_, rank, [&] { return round->complete() || aborted_; }, what);
    if (aborted_) {
      lock.unlock();
      check_alive();
    }
    if (!round->complete()) {
      const std::vector<int> missing = missing_of(*round, group);
      throw SystemFailure(concat("rank ",
                                 rank,
                                 ": no collective over ranks ",
                                 to_text(group),
                                 " within ",
                                 format_duration(deadline_),
                                 ", ranks ",
                                 to_text(missing),
                                 " are missing; ",
                                 end_of_waits_from(missing.front())));
    }
    return round;
  }

 private:
  // Waits for `ready` until the deadline. After half of it the rank publishes what() it waits
  // for; a wait that reached the deadline stays published.
  template <class Ready, class What>
  bool wait(MutexLock& lock,
            std::condition_variable& changed,
            int rank,
            const Ready& ready,
            const What& what) {
    const Clock::time_point begun = Clock::now();
    if (changed.wait_until(lock.native(), begun + deadline_ / 2, ready)) {
      return true;
    }
    {
      const MutexLock waits_lock(waits_mutex_);
      waits_[rank] = what();
    }
    const bool done = changed.wait_until(lock.native(), begun + deadline_, ready);
    if (done) {
      const MutexLock waits_lock(waits_mutex_);
      waits_.erase(rank);
    }
    return done;
  }

  std::string end_of_waits_from(int rank) {
    const MutexLock lock(waits_mutex_);
    return end_of_waits(waits_, rank);
  }

  static std::vector<int> missing_of(const ThreadRound& round, const std::vector<int>& group) {
    std::vector<int> missing;
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (round.here[i] == 0) {
        missing.push_back(group[i]);
      }
    }
    return missing;
  }

  std::chrono::milliseconds deadline_;
  std::vector<Inbox> inboxes_;  // [rank]
  Mutex rounds_mutex_;
  std::condition_variable round_done_;
  // Null: none in progress.
  std::map<std::vector<int>, std::shared_ptr<ThreadRound>> open_rounds_
      ENTRAIN_GUARDED_BY(rounds_mutex_);
  Mutex waits_mutex_;
  // Of ranks that have been waiting for long.
  std::map<int, Wait> waits_ ENTRAIN_GUARDED_BY(waits_mutex_);
  Mutex reason_mutex_;
  std::string reason_ ENTRAIN_GUARDED_BY(reason_mutex_);
  std::atomic<bool> aborted_{false};
};

namespace {

class ThreadReceive : public PendingReceive {
 public:
  ThreadReceive(ThreadCommState& state,
                const ChannelKey& key,
                std::uint64_t tag,
                std::vector<std::int64_t> shape,
                at::TensorOptions options)
      : state_(state),
        key_(key),
        tag_(tag),
        shape_(std::move(shape)),
        dtype_(c10::typeMetaToScalarType(options.dtype())),
        device_(options.device()),
        sequence_(state.post(key)) {}

  at::Tensor wait() override {
    ENTRAIN_INVARIANT(!taken_, concat("a message of ", to_text(key_), " is waited for twice"));
    Message message = state_.take(key_, sequence_);
    taken_ = true;
    ENTRAIN_INVARIANT(message.tag == tag_,
                      concat("message ",
                             sequence_,
                             " of ",
                             to_text(key_),
                             " carries tag ",
                             message.tag,
                             ", the receive expects ",
                             tag_));
    ENTRAIN_INVARIANT(
        message.tensor.sizes() == at::IntArrayRef(shape_) && message.tensor.scalar_type() == dtype_,
        concat("message ",
               sequence_,
               " of ",
               to_text(key_),
               " is ",
               message.tensor.scalar_type(),
               message.tensor.sizes(),
               ", the receive expects ",
               dtype_,
               at::IntArrayRef(shape_)));
    return moved_to(device_, std::move(message.tensor));
  }

 private:
  ThreadCommState& state_;
  ChannelKey key_;
  std::uint64_t tag_;
  std::vector<std::int64_t> shape_;
  at::ScalarType dtype_;
  at::Device device_;
  std::uint64_t sequence_;
  bool taken_ = false;
};

class ThreadComm : public Comm {
 public:
  ThreadComm(ThreadCommState& state, int rank) : state_(state), rank_(rank) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return state_.size(); }

  void send(const ChannelKey& channel, std::uint64_t tag, at::Tensor tensor) override {
    check_channel(channel);
    ENTRAIN_INVARIANT(channel.source == rank_,
                      concat("rank ", rank_, " sends on ", to_text(channel)));
    tensor = tensor.detach().contiguous();
    state_.send(channel, tag, std::move(tensor));
  }

  std::unique_ptr<PendingReceive> post_receive(const ChannelKey& channel,
                                               std::uint64_t tag,
                                               std::vector<std::int64_t> shape,
                                               at::TensorOptions options) override {
    check_channel(channel);
    ENTRAIN_INVARIANT(channel.target == rank_,
                      concat("rank ", rank_, " receives on ", to_text(channel)));
    return std::make_unique<ThreadReceive>(state_, channel, tag, std::move(shape), options);
  }

  void all_reduce_sum(at::Tensor& tensor, const std::vector<int>& group) override {
    const at::NoGradGuard no_grad;
    const int member = member_of(group);
    const Unreported unreported;
    auto round = state_.join(member, group, tensor.detach().contiguous(), /*with_result=*/true);
    check_alike(round->inputs, group);
    // Every member adds its own share of the elements, in rank order.
    const std::int64_t length = tensor.numel();
    const auto num_members = static_cast<std::int64_t>(group.size());
    const std::int64_t begin = length * member / num_members;
    const std::int64_t end = length * (member + 1) / num_members;
    const at::Tensor result = round->result;
    at::Tensor share = result.view(-1).slice(0, begin, end);
    add_in_order(round->inputs, begin, end, share);
    leave(std::move(round), member, group);
    tensor.copy_(result);
  }

  at::Tensor reduce_scatter_sum(const at::Tensor& input, const std::vector<int>& group) override {
    const at::NoGradGuard no_grad;
    const int member = member_of(group);
    const auto num_members = static_cast<std::int64_t>(group.size());
    ENTRAIN_INVARIANT(input.dim() == 1 && input.numel() % num_members == 0,
                      concat("reduce_scatter_sum: ",
                             input.sizes(),
                             " does not divide among ",
                             num_members,
                             " ranks"));
    auto round = state_.join(member, group, input.detach().contiguous());
    check_alike(round->inputs, group);
    const std::int64_t length = input.numel() / num_members;
    at::Tensor result = at::empty({length}, input.options());
    add_in_order(round->inputs, length * member, length * (member + 1), result);
    leave(std::move(round), member, group);
    return result;
  }

  at::Tensor all_gather(const at::Tensor& input, const std::vector<int>& group) override {
    const at::NoGradGuard no_grad;
    const int member = member_of(group);
    ENTRAIN_INVARIANT(input.dim() == 1,
                      concat("all_gather: a vector is needed, not ", input.sizes()));
    auto round = state_.join(member, group, input.detach());
    check_alike(round->inputs, group);
    at::Tensor result = at::empty({input.numel() * std::ssize(group)}, input.options());
    {
      const Unreported unreported;  // copies from other devices
      std::vector<at::Tensor> parts;
      for (const at::Tensor& part : round->inputs) {
        parts.push_back(moved_to(input.device(), part));
      }
      at::cat_out(result, parts);
    }
    leave(std::move(round), member, group);
    return result;
  }

  void broadcast(at::Tensor& tensor, int root, const std::vector<int>& group) override {
    const at::NoGradGuard no_grad;
    const int member = member_of(group);
    const auto found = std::find(group.begin(), group.end(), root);
    ENTRAIN_INVARIANT(found != group.end(),
                      concat("broadcast from rank ", root, " to ranks ", to_text(group)));
    auto round = state_.join(member, group, tensor.detach());
    check_alike(round->inputs, group);
    if (rank_ != root) {
      tensor.copy_(round->inputs[at(found - group.begin())]);
    }
    leave(std::move(round), member, group);
  }

  void barrier(const std::vector<int>& group) override {
    state_.join(member_of(group), group, at::Tensor());
  }

  void abort(const std::string& reason) override { state_.abort(reason); }

 private:
  void check_channel(const ChannelKey& channel) const {
    ENTRAIN_INVARIANT(channel.source >= 0 && channel.source < size() && channel.target >= 0 &&
                          channel.target < size(),
                      concat(to_text(channel), ": ranks are 0 to ", size() - 1));
  }

  [[nodiscard]] int member_of(const std::vector<int>& group) const {
    const auto found = std::find(group.begin(), group.end(), rank_);
    ENTRAIN_INVARIANT(found != group.end() && std::is_sorted(group.begin(), group.end()) &&
                          group.front() >= 0 && group.back() < size(),
                      concat("rank ", rank_, ": collective over ranks ", to_text(group)));
    return static_cast<int>(found - group.begin());
  }

  static void check_alike(const std::vector<at::Tensor>& inputs, const std::vector<int>& group) {
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      ENTRAIN_INVARIANT(inputs[i].sizes() == inputs[0].sizes() &&
                            inputs[i].scalar_type() == inputs[0].scalar_type(),
                        concat("collective: rank ",
                               group[i],
                               " has ",
                               inputs[i].scalar_type(),
                               inputs[i].sizes(),
                               ", rank ",
                               group[0],
                               " ",
                               inputs[0].scalar_type(),
                               inputs[0].sizes()));
    }
  }

  // The end of a collective: after it no rank holds the members' tensors, so that
  // they may change, and are freed by their owners.
  void leave(std::shared_ptr<const ThreadRound> round, int member, const std::vector<int>& group) {
    round.reset();
    state_.join(member, group, at::Tensor());
  }

  // result[...] = inputs[0][begin, end) + inputs[1][begin, end) + …, from left to right.
  static void add_in_order(const std::vector<at::Tensor>& inputs,
                           std::int64_t begin,
                           std::int64_t end,
                           at::Tensor& result) {
    result.copy_(inputs[0].view(-1).slice(0, begin, end));
    const Unreported unreported;  // copies from other devices
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      result.add_(moved_to(result.device(), inputs[i].view(-1).slice(0, begin, end)));
    }
  }

  ThreadCommState& state_;
  int rank_;
};

}  // namespace

ThreadCommGroup::ThreadCommGroup(int num_ranks, std::chrono::milliseconds deadline) {
  if (num_ranks < 1 || deadline.count() <= 0) {
    throw InvalidInput(concat("communicator of ",
                              num_ranks,
                              " ranks with a deadline of ",
                              deadline.count(),
                              " ms; at least 1 of each is needed"));
  }
  state_ = std::make_shared<ThreadCommState>(num_ranks, deadline);
  for (int rank = 0; rank < num_ranks; ++rank) {
    comms_.push_back(std::make_unique<ThreadComm>(*state_, rank));
  }
}

ThreadCommGroup::~ThreadCommGroup() = default;

int ThreadCommGroup::size() const {
  return state_->size();
}

Comm& ThreadCommGroup::comm(int rank) {
  ENTRAIN_INVARIANT(rank >= 0 && rank < size(), concat("no rank ", rank, " of ", size()));
  return *comms_[at(rank)];
}

void ThreadCommGroup::abort(const std::string& reason) {
  state_->abort(reason);
}

}  // namespace entrain::engine
