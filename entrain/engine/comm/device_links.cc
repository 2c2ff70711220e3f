#include "entrain/engine/comm/device_links.h"

#include <algorithm>
#include <exception>
#include <thread>

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/comm/unreported.h"

namespace entrain::engine {
namespace {

constexpr int kTag = 0;  // such backends have no tags
constexpr std::chrono::milliseconds kPause{2};

c10::intrusive_ptr<c10d::ProcessGroup> group_of(const std::string& name) {
  try {
    return c10d::resolve_process_group(name);
  } catch (const std::exception&) {
    throw InvalidInput(concat("no process group '", name, "'"));
  }
}

c10::intrusive_ptr<c10d::Backend> backend_of(const std::string& name, at::Device device) {
  const auto group = group_of(name);
  const std::vector<c10::Device> served = group->getDeviceTypes();
  if (std::none_of(served.begin(), served.end(), [&](const c10::Device& one) {
        return one.type() == device.type();
      })) {
    throw InvalidInput(concat("process group '", name, "' has no backend for ", device.str()));
  }
  return group->getBackend(device.type());
}

}  // namespace

DeviceLinks::DeviceLinks(at::Device device,
                         const std::vector<std::string>& groups,
                         std::vector<int> peers,
                         std::chrono::milliseconds deadline)
    : device_(device), deadline_(deadline), peers_(std::move(peers)) {
  ENTRAIN_INVARIANT(groups.size() == 2, concat(groups.size(), " groups for two directions"));
  rank_ = group_of(groups[0])->getRank();
  rising_ = backend_of(groups[0], device);
  falling_ = backend_of(groups[1], device);
  std::sort(peers_.begin(), peers_.end());
  // Of the pairs (lower, higher) those of lower ranks come first, then this rank's own.
  for (const int peer : peers_) {
    ENTRAIN_INVARIANT(peer != rank_, concat("rank ", rank_, " among its peers"));
    connect(peer);
  }
}

DeviceLinks::~DeviceLinks() {
  const Clock::time_point end = Clock::now() + deadline_;
  while (sends() && Clock::now() < end) {
    std::this_thread::sleep_for(kPause);
    release_done();
  }
  if (sends()) {
    abort();  // never received
  }
  const Unreported unreported;
  under_way_.clear();
}

// Whether a transfer is in flight that may still be received.
bool DeviceLinks::sends() {
  const MutexLock lock(mutex_);
  return !aborted_ && std::any_of(under_way_.begin(), under_way_.end(), [](const Transfer& each) {
    return each.sent.defined();
  });
}

// One number in each direction.
void DeviceLinks::connect(int peer) {
  at::Tensor out = at::zeros({1}, at::TensorOptions(device_));
  at::Tensor in = at::zeros({1}, at::TensorOptions(device_));
  std::vector<at::Tensor> sent = {out};
  std::vector<at::Tensor> received = {in};
  if (rank_ < peer) {
    rising_->send(sent, peer, kTag)->wait();
    falling_->recv(received, peer, kTag)->wait();
  } else {
    rising_->recv(received, peer, kTag)->wait();
    falling_->send(sent, peer, kTag)->wait();
  }
}

bool DeviceLinks::carry(at::Device device, int peer) const {
  return device == device_ && std::binary_search(peers_.begin(), peers_.end(), peer);
}

c10d::Backend& DeviceLinks::backend_to(int target) {
  return rank_ < target ? *rising_ : *falling_;
}

c10d::Backend& DeviceLinks::backend_from(int source) {
  return source < rank_ ? *rising_ : *falling_;
}

void DeviceLinks::send(int target, at::Tensor tensor) {
  release_done();
  std::vector<at::Tensor> tensors = {tensor};
  c10::intrusive_ptr<c10d::Work> work = backend_to(target).send(tensors, target, kTag);
  const MutexLock lock(mutex_);
  under_way_.push_back({std::move(work), std::move(tensor), Clock::now(), ""});
}

c10::intrusive_ptr<c10d::Work> DeviceLinks::receive(int source,
                                                    at::Tensor& tensor,
                                                    const std::string& what) {
  release_done();
  std::vector<at::Tensor> tensors = {tensor};
  c10::intrusive_ptr<c10d::Work> work = backend_from(source).recv(tensors, source, kTag);
  const MutexLock lock(mutex_);
  under_way_.push_back({work, at::Tensor(), Clock::now(), what});
  return work;
}

void DeviceLinks::release_done() {
  const Unreported unreported;  // releases sent tensors
  const MutexLock lock(mutex_);
  under_way_.remove_if([](const Transfer& transfer) { return transfer.work->isCompleted(); });
}

// A send waits as long as its receiver computes; a receive finds its message in flight.
std::string DeviceLinks::overdue() {
  const MutexLock lock(mutex_);
  for (const Transfer& transfer : under_way_) {
    if (!transfer.sent.defined() && Clock::now() - transfer.begun > deadline_ &&
        !transfer.work->isCompleted()) {
      return transfer.what;
    }
  }
  return "";
}

void DeviceLinks::abort() {
  {
    const MutexLock lock(mutex_);
    if (aborted_) {
      return;
    }
    aborted_ = true;
  }
  rising_->abort();
  falling_->abort();
}

}  // namespace entrain::engine
