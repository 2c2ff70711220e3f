#include "entrain/engine/comm/c10d_comm.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/comm/c10d_messages.h"
#include "entrain/engine/comm/names.h"
#include "entrain/engine/comm/unreported.h"

namespace entrain::engine {
namespace {

// Transport tags: channels from 1 on, then groups.
constexpr int kFirstChannelTag = 1 - kLeastChannel;
constexpr int kFirstGroupTag = kMaxChannelTag + 1;
// Up to this size all ranks send everything to all others: one hop instead of two.
constexpr std::int64_t kSmall = 4096;

}  // namespace

// State of channels and collectives. For the rank's thread, except abort().
class C10dState {
 public:
  C10dState(const std::string& group_name, std::chrono::milliseconds deadline)
      : messages(group_name, deadline) {}

  [[nodiscard]] int rank() const { return messages.transport().rank(); }
  [[nodiscard]] int size() const { return messages.transport().size(); }

  C10dMessages messages;
  std::map<ChannelKey, std::uint64_t> sent;
  std::map<ChannelKey, std::uint64_t> posted;
  std::map<std::vector<int>, std::uint64_t> met;
};

namespace {

using Incoming = C10dMessages::Incoming;

class C10dReceive : public PendingReceive {
 public:
  C10dReceive(C10dState& state, const ChannelKey& key, Incoming incoming)
      : state_(state), key_(key), incoming_(incoming) {}

  at::Tensor wait() override {
    ENTRAIN_INVARIANT(!taken_, concat("a message of ", to_text(key_), " is waited for twice"));
    taken_ = true;
    const MessageHeader header = state_.messages.take_header(*incoming_);
    const MessageHeader& expected = incoming_->expected;
    const std::string name = concat("message ", expected.sequence, " of ", to_text(key_));
    ENTRAIN_INVARIANT(
        header.tag == expected.tag && header.sequence == expected.sequence,
        concat(name, " carries tag ", header.tag, ", the receive expects ", expected.tag));
    ENTRAIN_INVARIANT(
        shape_text(header) == shape_text(expected),
        concat(name, " is ", shape_text(header), ", the receive expects ", shape_text(expected)));
    return state_.messages.take_tensor(incoming_);
  }

 private:
  C10dState& state_;
  ChannelKey key_;
  Incoming incoming_;
  bool taken_ = false;
};

// One collective of one group: the members send each other tensors and receive theirs.
class C10dRound {
 public:
  C10dRound(C10dState& state, const std::vector<int>& group, const char* name)
      : state_(state), group_(group), what_(name) {
    const int rank = state.rank();
    const auto found = std::find(group.begin(), group.end(), rank);
    ENTRAIN_INVARIANT(found != group.end() && std::is_sorted(group.begin(), group.end()) &&
                          group.front() >= 0 && group.back() < state.size(),
                      concat("rank ", rank, ": collective over ranks ", to_text(group)));
    member_ = found - group.begin();
    name_.sequence = state.met[group]++;
    name_.tag = hash_of(name);
    constexpr std::uint64_t kTags = kMaxTransportTag + 1 - kFirstGroupTag;
    name_.transport_tag = kFirstGroupTag + static_cast<int>(hash_of(to_text(group)) % kTags);
  }

  [[nodiscard]] std::int64_t num_members() const { return std::ssize(group_); }

  // outgoing(m): what member m gets from this rank, a contiguous tensor that nobody changes any
  // more; what comes from each member has the shape of outgoing(this one).
  //
  // Returns  [member]
  template <class Outgoing>
  std::vector<at::Tensor> exchange(const Outgoing& outgoing) {
    const at::Tensor own = outgoing(member_);
    std::vector<Incoming> incoming(group_.size());
    for (std::size_t m = 0; m < group_.size(); ++m) {
      if (static_cast<std::int64_t>(m) != member_) {
        incoming[m] = receive(group_[m], own);
      }
    }
    for (std::size_t m = 0; m < group_.size(); ++m) {
      if (static_cast<std::int64_t>(m) != member_) {
        send(group_[m], outgoing(static_cast<std::int64_t>(m)));
      }
    }
    std::vector<at::Tensor> tensors(group_.size());
    tensors[at(member_)] = own;
    for (std::size_t m = 0; m < group_.size(); ++m) {
      if (static_cast<std::int64_t>(m) != member_) {
        tensors[m] = take(incoming[m]);
      }
    }
    return tensors;
  }

  // The root's tensor, on every member.
  at::Tensor broadcast(const at::Tensor& own, int root) {
    if (group_[at(member_)] != root) {
      return take(receive(root, own));
    }
    for (const int peer : group_) {
      if (peer != root) {
        send(peer, own);
      }
    }
    return own;
  }

 private:
  void send(int peer, const at::Tensor& tensor) {
    state_.messages.send(peer, name_, tensor, what(peer));
  }
  Incoming receive(int peer, const at::Tensor& like) {
    return state_.messages.receive(peer, name_, like.sizes(), like.options(), what(peer));
  }
  at::Tensor take(Incoming incoming) {
    check(state_.messages.take_header(*incoming), incoming->expected, incoming->source);
    return state_.messages.take_tensor(incoming);
  }

  [[nodiscard]] std::string what(int peer) const {
    return concat(what_, " with rank ", peer, " over ranks ", to_text(group_));
  }

  void check(const MessageHeader& header, const MessageHeader& expected, int peer) const {
    ENTRAIN_INVARIANT(header.tag == expected.tag && header.sequence == expected.sequence,
                      concat(what(peer), ": the other rank is in another collective"));
    ENTRAIN_INVARIANT(shape_text(header) == shape_text(expected),
                      concat("collective: rank ",
                             peer,
                             " has ",
                             shape_text(header),
                             ", rank ",
                             group_[at(member_)],
                             " ",
                             shape_text(expected)));
  }

  C10dState& state_;
  const std::vector<int>& group_;
  const char* what_;
  std::int64_t member_ = 0;
  MessageName name_;
};

// The device of a collective's tensors while members exchange them: the same on all members, who
// have the same links.
at::Device wire_of(const C10dState& state,
                   const at::Tensor& tensor,
                   const std::vector<int>& group) {
  const int other = group.front() == state.rank() ? group.back() : group.front();
  return state.messages.wire(tensor.device(), other);
}

// Messages may be in flight when a collective ends; the caller may then change its tensor.
at::Tensor copy_on(at::Device device, const at::Tensor& tensor) {
  return tensor.device() == device ? tensor.detach().clone(at::MemoryFormat::Contiguous)
                                   : tensor.detach().to(device).contiguous();
}

// fill(tensor), through a copy on that device if the tensor is elsewhere.
template <class Fill>
void fill_on(at::Device device, at::Tensor& tensor, const Fill& fill) {
  if (tensor.device() == device) {
    fill(tensor);
    return;
  }
  at::Tensor there = at::empty(tensor.sizes(), tensor.options().device(device));
  fill(there);
  tensor.copy_(there);
}

// From left to right, as in ThreadComm.
void sum_up(const std::vector<at::Tensor>& tensors, at::Tensor& sum) {
  sum.copy_(tensors.front());
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    sum.add_(tensors[i]);
  }
}

void check_channel(const ChannelKey& key, int own, int peer, int rank, int size) {
  ENTRAIN_INVARIANT(
      own == rank && peer != rank && peer >= 0 && peer < size && key.channel >= kLeastChannel,
      concat("rank ", rank, " of ", size, " uses ", to_text(key)));
}

}  // namespace

C10dComm::C10dComm(const std::string& group_name, std::chrono::milliseconds deadline)
    : state_(std::make_shared<C10dState>(group_name, deadline)) {}

C10dComm::~C10dComm() = default;

int C10dComm::rank() const {
  return state_->rank();
}

int C10dComm::size() const {
  return state_->size();
}

void C10dComm::abort(const std::string& reason) {
  state_->messages.transport().abort(reason);
}

void C10dComm::check() const {
  state_->messages.transport().check_alive();
}

void C10dComm::connect(at::Device device,
                       const std::vector<std::string>& groups,
                       const std::vector<int>& peers) {
  state_->messages.connect(device, groups, peers);
}

void C10dComm::send(const ChannelKey& channel, std::uint64_t tag, at::Tensor tensor) {
  check_channel(channel, channel.source, channel.target, rank(), size());
  const at::NoGradGuard no_grad;
  tensor = tensor.detach();
  state_->messages.send(channel.target,
                        {channel.channel + kFirstChannelTag, tag, state_->sent[channel]++},
                        std::move(tensor),
                        concat("send on ", to_text(channel)));
}

std::unique_ptr<PendingReceive> C10dComm::post_receive(const ChannelKey& channel,
                                                       std::uint64_t tag,
                                                       std::vector<std::int64_t> shape,
                                                       at::TensorOptions options) {
  check_channel(channel, channel.target, channel.source, rank(), size());
  const std::uint64_t sequence = state_->posted[channel]++;
  return std::make_unique<C10dReceive>(
      *state_,
      channel,
      state_->messages.receive(channel.source,
                               {channel.channel + kFirstChannelTag, tag, sequence},
                               shape,
                               options,
                               concat("message number ", sequence, " on ", to_text(channel))));
}

void C10dComm::all_reduce_sum(at::Tensor& tensor, const std::vector<int>& group) {
  const at::NoGradGuard no_grad;
  const Unreported unreported;
  const at::Device wire = wire_of(*state_, tensor, group);
  if (tensor.numel() <= kSmall) {
    C10dRound round(*state_, group, "all_reduce_sum");
    const at::Tensor input = copy_on(wire, tensor);
    fill_on(wire, tensor, [&](at::Tensor& sum) {
      sum_up(round.exchange([&](std::int64_t) { return input; }), sum);
    });
    return;
  }
  // Every member adds its own share of the elements, padded to one length, and sends it to the
  // others.
  C10dRound shares(*state_, group, "all_reduce_sum");
  const std::int64_t members = shares.num_members();
  const std::int64_t length = (tensor.numel() + members - 1) / members;
  const at::TensorOptions options = tensor.options().device(wire);
  const at::Tensor padded = at::zeros({length * members}, options);
  padded.narrow(0, 0, tensor.numel()).copy_(tensor.reshape({-1}));
  at::Tensor share = at::empty({length}, options);
  sum_up(shares.exchange([&](std::int64_t m) { return padded.narrow(0, m * length, length); }),
         share);
  C10dRound results(*state_, group, "all_reduce_sum, second half");
  const at::Tensor joined = at::cat(results.exchange([&](std::int64_t) { return share; }));
  tensor.copy_(joined.narrow(0, 0, tensor.numel()).view(tensor.sizes()));
}

at::Tensor C10dComm::reduce_scatter_sum(const at::Tensor& input, const std::vector<int>& group) {
  const at::NoGradGuard no_grad;
  C10dRound round(*state_, group, "reduce_scatter_sum");
  const std::int64_t members = round.num_members();
  ENTRAIN_INVARIANT(
      input.dim() == 1 && input.numel() % members == 0,
      concat("reduce_scatter_sum: ", input.sizes(), " does not divide among ", members, " ranks"));
  const std::int64_t length = input.numel() / members;
  at::Tensor sum = at::empty({length}, input.options());
  const Unreported unreported;
  const at::Device wire = wire_of(*state_, input, group);
  const at::Tensor whole = copy_on(wire, input);
  fill_on(wire, sum, [&](at::Tensor& there) {
    sum_up(round.exchange([&](std::int64_t m) { return whole.narrow(0, m * length, length); }),
           there);
  });
  return sum;
}

at::Tensor C10dComm::all_gather(const at::Tensor& input, const std::vector<int>& group) {
  const at::NoGradGuard no_grad;
  ENTRAIN_INVARIANT(input.dim() == 1,
                    concat("all_gather: a vector is needed, not ", input.sizes()));
  C10dRound round(*state_, group, "all_gather");
  at::Tensor joined = at::empty({input.numel() * round.num_members()}, input.options());
  const Unreported unreported;
  const at::Device wire = wire_of(*state_, input, group);
  const at::Tensor own = copy_on(wire, input);
  fill_on(wire, joined, [&](at::Tensor& there) {
    at::cat_out(there, round.exchange([&](std::int64_t) { return own; }));
  });
  return joined;
}

void C10dComm::broadcast(at::Tensor& tensor, int root, const std::vector<int>& group) {
  const at::NoGradGuard no_grad;
  ENTRAIN_INVARIANT(std::find(group.begin(), group.end(), root) != group.end(),
                    concat("broadcast from rank ", root, " to ranks ", to_text(group)));
  C10dRound round(*state_, group, "broadcast");
  const Unreported unreported;
  if (rank() == root) {
    round.broadcast(copy_on(wire_of(*state_, tensor, group), tensor), root);
  } else {
    tensor.copy_(round.broadcast(tensor, root));
  }
}

void C10dComm::barrier(const std::vector<int>& group) {
  C10dRound round(*state_, group, "barrier");
  const at::Tensor nothing = at::empty({0}, at::kLong);
  round.exchange([&](std::int64_t) { return nothing; });
}

}  // namespace entrain::engine
