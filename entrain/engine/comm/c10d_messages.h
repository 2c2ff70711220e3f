// Messages between processes: a tensor and a header that names it.
//
// For c10d_comm.cc alone: this header is heavy.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/engine/comm/c10d_transport.h"
#include "entrain/engine/comm/device_links.h"

namespace entrain::engine {

// What tells a message from others on its way between two ranks.
struct MessageName {
  int transport_tag = 0;       // 1 to kMaxTransportTag: of its channel or group
  std::uint64_t tag = 0;       // checks
  std::uint64_t sequence = 0;  // among those of the transport tag, in their order
};

// Up to kMaxChannelTag tags are of channels, the others of groups, of which two may share one.
inline constexpr int kMaxChannelTag = (1 << 14) - 1;
inline constexpr int kMaxTransportTag = (1 << 25) - 1;

// What goes before a tensor, with one that is small. Plain data between equal programs.
struct MessageHeader {
  static constexpr std::size_t kMaxDims = 4;
  static constexpr std::size_t kRoom = 448;
  std::uint64_t tag = 0;
  std::uint64_t sequence = 0;
  std::int64_t transport_tag = 0;
  std::int64_t dtype = 0;
  std::int64_t dims = 0;
  std::array<std::int64_t, kMaxDims> sizes{};
  std::array<std::byte, kRoom> small{};  // the tensor's bytes, where they have room
};

std::string shape_text(const MessageHeader& header);

// A tensor on its way here, behind its header. The transport writes into both until their works are
// done.
struct IncomingMessage {
  int source = 0;
  std::string what;
  MessageHeader expected;
  at::Device device = at::kCPU;  // where it is wanted
  bool by_links = false;         // between devices: what follows is not used
  at::Tensor header;
  at::Tensor tensor;
  WorkPtr header_work;
  WorkPtr tensor_work;  // none where the header has the tensor
};

// For the rank's thread. Tensors of devices that links carry go over them, others by way of the
// host; ranks must agree, so a device's tensor is received on a device.
//
// Over links messages come in the order in which they were sent, whatever they are waited for in:
// a header tells what the next one is, and those before the one that is wanted are kept.
class C10dMessages {
 public:
  using Incoming = std::list<IncomingMessage>::iterator;

  C10dMessages(const std::string& group_name, std::chrono::milliseconds deadline);
  ~C10dMessages();

  // From now on links (device_links.h) carry what they can.
  void connect(at::Device device, const std::vector<std::string>& groups, std::vector<int> peers);
  // Where tensors of `device` are while they go between this rank and `peer`.
  [[nodiscard]] at::Device wire(at::Device device, int peer) const;

  // Keeps the tensor until it has been taken; its end is not reported (unreported.h).
  void send(int target, const MessageName& name, at::Tensor tensor, const std::string& what);
  Incoming receive(int source,
                   const MessageName& name,
                   at::IntArrayRef shape,
                   at::TensorOptions options,
                   std::string what);
  // What the header alone can tell: how a mismatch is reported is the caller's.
  MessageHeader take_header(const IncomingMessage& incoming);
  // Behind take_header(), on the device where it is wanted. The end of `incoming`.
  at::Tensor take_tensor(Incoming incoming);

  C10dTransport& transport() { return transport_; }
  [[nodiscard]] const C10dTransport& transport() const { return transport_; }

 private:
  // What came over links before it was wanted.
  struct Arrived {
    MessageHeader header;
    at::Tensor tensor;
    WorkPtr work;  // none for an empty tensor
  };
  using Place = std::pair<std::int64_t, std::uint64_t>;  // transport tag, sequence

  void send_by_host(int target,
                    std::unique_ptr<MessageHeader> header,
                    at::Tensor tensor,
                    const std::string& what);
  void pull(const IncomingMessage& wanted);

  std::chrono::milliseconds deadline_;
  std::unique_ptr<DeviceLinks> links_;  // before the transport, whose watcher looks at them
  std::map<int, std::map<Place, Arrived>> arrived_;  // by source
  // What was not taken in the end, refused messages among it, stays to the end: the peers' other
  // messages arrive behind it on the same connection.
  std::list<IncomingMessage> under_way_;
  std::list<at::Tensor> headers_;  // that pull() has receives for
  C10dTransport transport_;
};

}  // namespace entrain::engine
