// Messages between processes: a tensor and a header that names it.
//
// Include it in c10d_comm.cc only: it is expensive to compile.
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

// Identifies a message among others between two ranks.
struct MessageName {
  int transport_tag = 0;       // 1 to kMaxTransportTag: of its channel or group
  std::uint64_t tag = 0;       // only checked
  std::uint64_t sequence = 0;  // number among messages of the transport tag
};

// Tags up to kMaxChannelTag are for channels, the others for groups; two groups may share a tag.
inline constexpr int kMaxChannelTag = (1 << 14) - 1;
inline constexpr int kMaxTransportTag = (1 << 25) - 1;

// Sent before a tensor; holds the tensor if that is small. Plain data between equal programs.
struct MessageHeader {
  static constexpr std::size_t kMaxDims = 4;
  static constexpr std::size_t kRoom = 448;
  std::uint64_t tag = 0;
  std::uint64_t sequence = 0;
  std::int64_t transport_tag = 0;
  std::int64_t dtype = 0;
  std::int64_t dims = 0;
  std::array<std::int64_t, kMaxDims> sizes{};
  std::array<std::byte, kRoom> small{};  // the tensor's bytes, if they fit
};

std::string shape_text(const MessageHeader& header);

// A tensor being received, after its header. The transport writes into both until their works are
// done.
struct IncomingMessage {
  int source = 0;
  std::string what;
  MessageHeader expected;
  at::Device device = at::kCPU;  // the device requested for the tensor
  bool by_links = false;         // directly between devices: the members below are unused
  at::Tensor header;
  at::Tensor tensor;
  WorkPtr header_work;
  WorkPtr tensor_work;  // null if the header holds the tensor
};

// Called by the rank's thread. Tensors between connected devices use device links, others go
// through the host. Ranks must agree, so a tensor sent from a device is received on a device.
//
// Over links messages arrive in the order sent, whatever the order of receives: a header says which
// message is next, and messages before the requested one are kept.
class C10dMessages {
 public:
  using Incoming = std::list<IncomingMessage>::iterator;

  C10dMessages(const std::string& group_name, std::chrono::milliseconds deadline);
  ~C10dMessages();

  // From now on links (device_links.h) carry the tensors they can.
  void connect(at::Device device, const std::vector<std::string>& groups, std::vector<int> peers);
  // The device that holds tensors of `device` while they are sent between this rank and `peer`.
  [[nodiscard]] at::Device wire(at::Device device, int peer) const;

  // Keeps the tensor until it was received; its release is not reported (unreported.h).
  void send(int target, const MessageName& name, at::Tensor tensor, const std::string& what);
  Incoming receive(int source,
                   const MessageName& name,
                   at::IntArrayRef shape,
                   at::TensorOptions options,
                   std::string what);
  // Checks only the header; the caller reports a mismatch.
  MessageHeader take_header(const IncomingMessage& incoming);
  // After take_header(), on the requested device. Consumes `incoming`.
  at::Tensor take_tensor(Incoming incoming);

  C10dTransport& transport() { return transport_; }
  [[nodiscard]] const C10dTransport& transport() const { return transport_; }

 private:
  // A message that arrived over links before it was requested.
  struct Arrived {
    MessageHeader header;
    at::Tensor tensor;
    WorkPtr work;  // null for an empty tensor
  };
  using Place = std::pair<std::int64_t, std::uint64_t>;  // transport tag, sequence

  void send_by_host(int target,
                    std::unique_ptr<MessageHeader> header,
                    at::Tensor tensor,
                    const std::string& what);
  void pull(const IncomingMessage& wanted);

  std::chrono::milliseconds deadline_;
  std::unique_ptr<DeviceLinks> links_;  // before the transport, whose watcher uses them
  std::map<int, std::map<Place, Arrived>> arrived_;  // by source
  // Messages never received, refused ones among them, are kept to the end: the peers' other
  // messages arrive after them on the same connection.
  std::list<IncomingMessage> under_way_;
  std::list<at::Tensor> headers_;  // pull() has posted receives into these
  C10dTransport transport_;
};

}  // namespace entrain::engine
