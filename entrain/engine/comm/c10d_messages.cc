#include "entrain/engine/comm/c10d_messages.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/comm/unreported.h"

namespace entrain::engine {
namespace {

static_assert(std::is_trivially_copyable_v<MessageHeader> && sizeof(MessageHeader) % 8 == 0);

// Headers of messages over links, one stream a source whatever they are of.
constexpr int kLinkTag = 0;
// Tensors are sent beside their headers, under tags that include their size: the transport ends the
// process that gets more bytes than it has room for, so a tensor of another size must not meet the
// receive that was posted. Its header does, and reports it. Channels use the upper half of these
// tags.
constexpr int kTensorTags = 1 << 29;
constexpr int kChannelTensorTags = 1 << 30;
constexpr int kSizeBits = 16;

MessageHeader header_of(const MessageName& name, at::ScalarType dtype, at::IntArrayRef shape) {
  ENTRAIN_INVARIANT(shape.size() <= MessageHeader::kMaxDims,
                    concat("a message of ", shape.size(), " dimensions"));
  MessageHeader header;
  header.tag = name.tag;
  header.sequence = name.sequence;
  header.transport_tag = name.transport_tag;
  header.dtype = static_cast<std::int64_t>(dtype);
  header.dims = static_cast<std::int64_t>(shape.size());
  std::copy(shape.begin(), shape.end(), header.sizes.begin());
  return header;
}

at::IntArrayRef shape_of(const MessageHeader& header) {
  const auto dims = std::clamp<std::int64_t>(header.dims, 0, MessageHeader::kMaxDims);
  return {header.sizes.data(), static_cast<std::size_t>(dims)};
}

// The header's memory as a tensor, which owns it.
at::Tensor as_tensor(std::unique_ptr<MessageHeader> header) {
  MessageHeader* memory = header.release();
  return at::from_blob(
      memory, {sizeof(MessageHeader) / 8}, [memory](void*) { delete memory; }, at::kLong);
}

MessageHeader header_in(const at::Tensor& tensor) {
  MessageHeader header;
  std::memcpy(&header, tensor.const_data_ptr(), sizeof(MessageHeader));
  return header;
}

// Sizes that happen to share a tag share it on both sides, in one order.
int tensor_tag(int transport_tag, std::size_t num_bytes) {
  const std::uint64_t scattered = std::uint64_t{num_bytes} * 0x9E3779B97F4A7C15U;
  if (transport_tag <= kMaxChannelTag) {
    return kChannelTensorTags | transport_tag << kSizeBits |
           static_cast<int>(scattered >> (64 - kSizeBits));
  }
  // A group's: the tag and the size.
  const std::uint64_t mixed =
      (scattered ^ static_cast<std::uint64_t>(transport_tag)) * 0x9E3779B97F4A7C15U;
  return kTensorTags | static_cast<int>(mixed >> 35U);
}

}  // namespace

std::string shape_text(const MessageHeader& header) {
  return concat(static_cast<at::ScalarType>(header.dtype), shape_of(header));
}

C10dMessages::C10dMessages(const std::string& group_name, std::chrono::milliseconds deadline)
    : deadline_(deadline), transport_(group_name, deadline) {}

C10dMessages::~C10dMessages() = default;

void C10dMessages::connect(at::Device device,
                           const std::vector<std::string>& groups,
                           std::vector<int> peers) {
  links_ = std::make_unique<DeviceLinks>(device, groups, std::move(peers), deadline_);
  transport_.watch_also([this] { return links_->overdue(); }, [this] { links_->abort(); });
}

at::Device C10dMessages::wire(at::Device device, int peer) const {
  return links_ != nullptr && links_->carry(device, peer) ? device : at::kCPU;
}

void C10dMessages::send(int target,
                        const MessageName& name,
                        at::Tensor tensor,
                        const std::string& what) {
  const at::Device on_the_way = wire(tensor.device(), target);
  tensor = moved_to(on_the_way, std::move(tensor)).contiguous();
  auto header =
      std::make_unique<MessageHeader>(header_of(name, tensor.scalar_type(), tensor.sizes()));
  if (tensor.is_cpu()) {
    return send_by_host(target, std::move(header), std::move(tensor), what);
  }
  transport_.check_alive();
  if (tensor.numel() > 0) {
    links_->send(target, std::move(tensor));
  }
  transport_.send(target, kLinkTag, as_tensor(std::move(header)), what);  // after it was sent
}

void C10dMessages::send_by_host(int target,
                                std::unique_ptr<MessageHeader> header,
                                at::Tensor tensor,
                                const std::string& what) {
  const auto transport_tag = static_cast<int>(header->transport_tag);
  const bool small = tensor.nbytes() <= MessageHeader::kRoom;
  if (small && tensor.numel() > 0) {
    std::memcpy(header->small.data(), tensor.const_data_ptr(), tensor.nbytes());
    const Unreported unreported;
    tensor = at::Tensor();
  }
  transport_.send(target, transport_tag, as_tensor(std::move(header)), what);
  if (!small) {
    const int its_tag = tensor_tag(transport_tag, tensor.nbytes());
    transport_.send(target, its_tag, std::move(tensor), what);
  }
}

C10dMessages::Incoming C10dMessages::receive(int source,
                                             const MessageName& name,
                                             at::IntArrayRef shape,
                                             at::TensorOptions options,
                                             std::string what) {
  const at::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  IncomingMessage& incoming = under_way_.emplace_back();
  incoming.source = source;
  incoming.what = std::move(what);
  incoming.expected = header_of(name, dtype, shape);
  incoming.device = options.device();
  incoming.by_links = !wire(options.device(), source).is_cpu();
  if (incoming.by_links) {
    return std::prev(under_way_.end());
  }
  incoming.header = as_tensor(std::make_unique<MessageHeader>());
  {
    const Unreported unreported;
    incoming.tensor = at::empty(shape, dtype);
  }
  incoming.header_work =
      transport_.receive(source, name.transport_tag, incoming.header, incoming.what);
  if (incoming.tensor.nbytes() > MessageHeader::kRoom) {
    const int its_tag = tensor_tag(name.transport_tag, incoming.tensor.nbytes());
    incoming.tensor_work = transport_.receive(source, its_tag, incoming.tensor, incoming.what);
  }
  return std::prev(under_way_.end());
}

// Receives the next message from that rank, whatever it is.
void C10dMessages::pull(const IncomingMessage& wanted) {
  headers_.push_back(as_tensor(std::make_unique<MessageHeader>()));
  const WorkPtr work = transport_.receive(wanted.source, kLinkTag, headers_.back(), wanted.what);
  transport_.await(work, wanted.source, wanted.what);
  Arrived arrived;
  arrived.header = header_in(headers_.back());
  headers_.pop_back();
  {
    const Unreported unreported;
    arrived.tensor = at::empty(
        shape_of(arrived.header),
        at::TensorOptions(static_cast<at::ScalarType>(arrived.header.dtype)).device(wanted.device));
  }
  if (arrived.tensor.numel() > 0) {
    arrived.work = links_->receive(wanted.source, arrived.tensor, wanted.what);
  }
  const Place place{arrived.header.transport_tag, arrived.header.sequence};
  const bool added = arrived_[wanted.source].emplace(place, std::move(arrived)).second;
  ENTRAIN_INVARIANT(added, concat(wanted.what, ": two messages of one name"));
}

MessageHeader C10dMessages::take_header(const IncomingMessage& incoming) {
  if (!incoming.by_links) {
    transport_.await(incoming.header_work, incoming.source, incoming.what);
    return header_in(incoming.header);
  }
  const Place place{incoming.expected.transport_tag, incoming.expected.sequence};
  const std::map<Place, Arrived>& arrived = arrived_[incoming.source];
  while (!arrived.contains(place)) {
    pull(incoming);
  }
  return arrived.at(place).header;
}

at::Tensor C10dMessages::take_tensor(Incoming incoming) {
  at::Tensor tensor;
  if (incoming->by_links) {
    const Place place{incoming->expected.transport_tag, incoming->expected.sequence};
    auto arrived = arrived_[incoming->source].extract(place);
    if (arrived.mapped().work != nullptr) {
      try {
        transport_.check_alive();
        arrived.mapped().work->wait();
      } catch (const std::exception&) {
        transport_.check_alive();  // throws the reason if the wait was ended
        throw;
      }
    }
    tensor = std::move(arrived.mapped().tensor);
  } else {
    tensor = std::move(incoming->tensor);
    if (incoming->tensor_work != nullptr) {
      transport_.await(incoming->tensor_work, incoming->source, incoming->what);
    } else if (tensor.numel() > 0) {
      const auto* header = static_cast<const MessageHeader*>(incoming->header.const_data_ptr());
      std::memcpy(tensor.mutable_data_ptr(), header->small.data(), tensor.nbytes());
    }
    tensor = moved_to(incoming->device, std::move(tensor));
  }
  under_way_.erase(incoming);
  return tensor;
}

}  // namespace entrain::engine
