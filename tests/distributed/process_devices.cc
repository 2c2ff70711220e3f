#include "tests/distributed/process_devices.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/models/live_bytes.h"

#include "tests/distributed/fifo_backend.h"
#include "tests/distributed/process_expect.h"
#include "tests/oracle/engine/stand_in_device.h"
#include "tests/oracle/engine/tiny_run.h"

namespace entrain {
namespace {

using engine::C10dComm;
using engine::LiveBytes;
using engine::RunConfig;
using oracle::stand_in_device;

std::vector<int> all_ranks(const C10dComm& comm) {
  std::vector<int> ranks(static_cast<std::size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// What rank `rank` brings.
at::Tensor quarters_of(int rank, std::int64_t size) {
  return at::arange(size, at::kFloat).mul_(0.25).add_(static_cast<double>(rank));
}

// As all ranks bring it, added up.
at::Tensor sum_of(const C10dComm& comm, std::int64_t size) {
  at::Tensor sum = quarters_of(0, size);
  for (int rank = 1; rank < comm.size(); ++rank) {
    sum += quarters_of(rank, size);
  }
  return sum;
}

void check_collectives(C10dComm& comm, at::Device device) {
  const std::vector<int> all = all_ranks(comm);
  for (const std::int64_t size : {3, 4096, 300'001}) {
    at::Tensor tensor = quarters_of(comm.rank(), size).to(device);
    comm.all_reduce_sum(tensor, all);
    expect(tensor.device() == device && at::equal(tensor.cpu(), sum_of(comm, size)),
           concat("all_reduce_sum of ", size));
  }
  const std::int64_t length = 50'021;
  const at::Tensor slice =
      comm.reduce_scatter_sum(quarters_of(comm.rank(), length * comm.size()).to(device), all);
  expect(slice.device() == device &&
             at::equal(slice.cpu(),
                       sum_of(comm, length * comm.size()).narrow(0, length * comm.rank(), length)),
         "reduce_scatter_sum");
  const at::Tensor joined = comm.all_gather(quarters_of(comm.rank(), length).to(device), all);
  expect(joined.device() == device, "all_gather's device");
  for (const int rank : all) {
    expect(at::equal(joined.narrow(0, length * rank, length).cpu(), quarters_of(rank, length)),
           "all_gather");
  }
  at::Tensor sent = quarters_of(comm.rank(), 1000).to(device);
  comm.broadcast(sent, 2, all);
  expect(sent.device() == device && at::equal(sent.cpu(), quarters_of(2, 1000)), "broadcast");
}

// Every message to the peer's device, and where `to_host` every second to its host; what is sent is
// freed by nobody's account, what comes stands in no account until it is freed here.
void check_messages(C10dComm& comm, at::Device device, bool to_host) {
  const int peer = comm.rank() ^ 1;
  const std::int64_t size = 10'000;
  const LiveBytes live(device.type());
  for (std::uint64_t tag = 0; tag < 4; ++tag) {
    at::Tensor message = quarters_of(comm.rank(), 2 * size).to(device).view({size, 2}).t();
    comm.send({comm.rank(), peer, 0}, tag, std::move(message));
  }
  expect(live.bytes() == 4 * 8 * size, "the end of what was sent is not reported");
  for (std::uint64_t tag = 0; tag < 4; ++tag) {
    const at::TensorOptions options =
        at::TensorOptions(at::kFloat).device(to_host && tag % 2 == 1 ? at::kCPU : device);
    const at::Tensor message =
        comm.post_receive({peer, comm.rank(), 0}, tag, {2, size}, options)->wait();
    expect(message.device() == options.device() &&
               at::equal(message.cpu(), quarters_of(peer, 2 * size).view({size, 2}).t()),
           concat("message ", tag));
  }
  const std::int64_t came = to_host ? 2 : 4;
  expect(live.bytes() == (4 - came) * 8 * size, "what came to the device has gone");
}

// Messages of two channels and both directions at once, taken in another order than sent; an empty
// one among them.
void check_order(C10dComm& comm, at::Device device) {
  const int peer = comm.rank() ^ 1;
  const auto value = [](int rank, int channel, int message) {
    return static_cast<float>(100 * rank + 10 * channel + message);
  };
  const auto options = at::TensorOptions(at::kFloat).device(device);
  for (int message = 0; message < 3; ++message) {
    for (const int channel : {0, 1, 4}) {
      comm.send({comm.rank(), peer, channel},
                static_cast<std::uint64_t>(message),
                at::full({channel == 4 ? 0 : 5000}, value(comm.rank(), channel, message), options));
    }
  }
  for (const int channel : {4, 1, 0}) {
    for (int message = 0; message < 3; ++message) {
      const at::Tensor taken = comm.post_receive({peer, comm.rank(), channel},
                                                 static_cast<std::uint64_t>(message),
                                                 {channel == 4 ? 0 : 5000},
                                                 options)
                                   ->wait();
      expect(channel == 4 || taken.cpu().eq(value(peer, channel, message)).all().item<bool>(),
             concat("message ", message, " of channel ", channel));
    }
  }
  bool refused = false;
  comm.send({comm.rank(), peer, 5}, 1, at::ones({2}, options));
  try {
    comm.post_receive({peer, comm.rank(), 5}, 1, {3}, options)->wait();
  } catch (const InternalError&) {
    refused = true;
  }
  expect(refused, "a message of another shape");
}

// Gives two Gloo groups backends for stand-ins.
std::vector<c10::intrusive_ptr<oracle::FifoBackend>> hang_as_nccl(
    const std::vector<std::string>& groups) {
  std::vector<c10::intrusive_ptr<oracle::FifoBackend>> backends;
  for (const std::string& name : groups) {
    const auto group = c10d::resolve_process_group(name);
    backends.push_back(
        c10::make_intrusive<oracle::FifoBackend>(group->getBackend(c10::DeviceType::CPU)));
    group->setBackend(
        c10::DeviceType::PrivateUse1, c10d::ProcessGroup::BackendType::CUSTOM, backends.back());
  }
  return backends;
}

// Rank 0's text, on all ranks.
std::string shared_text(C10dComm& comm, const std::string& own) {
  const std::vector<int> all = all_ranks(comm);
  at::Tensor length = at::full({1}, std::ssize(own), at::kLong);
  comm.broadcast(length, 0, all);
  at::Tensor bytes = at::empty({length.item<std::int64_t>()}, at::kByte);
  if (comm.rank() == 0) {
    std::memcpy(bytes.mutable_data_ptr(), own.data(), own.size());
  }
  comm.broadcast(bytes, 0, all);
  return {static_cast<const char*>(bytes.const_data_ptr()),
          static_cast<std::size_t>(bytes.numel())};
}

// A device a rank or all on one, beside threads with a device each.
void check_run(C10dComm& comm,
               const RunConfig& config,
               const std::vector<bool>& on_one_device,
               const std::string& what) {
  RunConfig by_threads = config;
  by_threads.output += "-threads-" + what;
  if (comm.rank() == 0) {
    engine::tiny::train_now(by_threads);
  }
  for (const bool shared : on_one_device) {
    const int local_rank = shared ? 0 : comm.rank();
    RunConfig by_processes = config;
    by_processes.output += concat(shared ? "-one-device-" : "-processes-", what);
    const std::atomic<bool> interrupted{false};
    engine::train(engine::prepare_run(by_processes), interrupted, comm, local_rank);
    if (comm.rank() == 0) {
      expect(engine::tiny::losses_of(by_threads) == engine::tiny::losses_of(by_processes),
             "losses differ: " + what);
      expect(engine::tiny::weights_of(by_threads) == engine::tiny::weights_of(by_processes),
             "weights differ: " + what);
    }
  }
  comm.barrier(all_ranks(comm));
}

void check_runs(C10dComm& comm, const std::vector<bool>& on_one_device) {
  stand_in_device();
  const engine::tiny::RunFolder folder;  // rank 0's is everybody's
  std::string model = engine::tiny::kRunModel;
  const std::string key = "num_kv_heads = 1";
  folder.write("model.toml", model.replace(model.find(key), key.size(), "num_kv_heads = 2"));
  RunConfig config = folder.config;
  config.plan.tensor_parallel = {{"vision", 2}, {"llm", 2}};
  config = engine::run_config_from_json(
      Json::parse(shared_text(comm, engine::to_json(config).dump())), "rank 0's run");
  config.execution.device = oracle::kStandInName;
  check_run(comm, config, on_one_device, "lanes of two ranks");
  config.plan.tensor_parallel = {};
  config.plan.replicas = 2;
  config.plan.shard_optimizer = true;
  check_run(comm, config, on_one_device, "two replicas");
}

}  // namespace

void check_device_messages(C10dComm& comm) {
  const at::Device device = stand_in_device(comm.rank() % 2);
  check_collectives(comm, device);
  check_messages(comm, device, /*to_host=*/true);
}

void check_device_links(C10dComm& comm, const std::vector<std::string>& groups) {
  const at::Device device = stand_in_device(comm.rank());
  hang_as_nccl(groups);
  std::vector<int> peers = all_ranks(comm);
  peers.erase(peers.begin() + comm.rank());
  comm.connect(device, groups, peers);
  check_order(comm, device);
  check_collectives(comm, device);
  check_messages(comm, device, /*to_host=*/false);
  check_runs(comm, {false});
}

void check_lost_transfer(const std::string& group, const std::vector<std::string>& groups) {
  C10dComm comm(group, std::chrono::milliseconds(4000));
  const at::Device device = stand_in_device(0);
  const auto backends = hang_as_nccl(groups);
  std::vector<int> peers = all_ranks(comm);
  peers.erase(peers.begin() + comm.rank());
  comm.connect(device, groups, peers);
  comm.barrier(all_ranks(comm));
  const auto start = std::chrono::steady_clock::now();
  std::string message;
  try {
    if (comm.rank() == 0) {
      backends[0]->lose();
      comm.send({0, 1, 3}, 7, at::ones({1000}, at::TensorOptions(device)));
    } else if (comm.rank() == 1) {
      comm.post_receive({0, 1, 3}, 7, {1000}, at::TensorOptions(device))->wait();
    }
    while (std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
      comm.send({comm.rank(), (comm.rank() + 1) % 4, 0}, 1, at::ones({1}));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  } catch (const std::exception& error) {
    message = error.what();
  }
  expect(message.find("rank 1: not all of message number 0 on channel 3") != std::string::npos,
         "not told what was lost: " + message);
  expect(std::chrono::steady_clock::now() - start < std::chrono::seconds(12), "told too late");
}

void check_device_runs(C10dComm& comm) {
  check_runs(comm, {false, true});
}

}  // namespace entrain
