#include "entrain/engine/profiler/machine.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <vector>

#include <ATen/Parallel.h>

#include "entrain/core/base/errors.h"

#include "entrain/engine/comm/thread_comm.h"
#include "entrain/engine/profiler/statistics.h"
#include "entrain/engine/profiler/stopwatch.h"

namespace entrain::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kNumbers = std::int64_t{1} << 22U;  // 16 MiB of float32
constexpr std::int64_t kNumbersOfTensor = std::int64_t{1} << 17U;
constexpr std::size_t kStates = 4;
constexpr int kRepeats = 7;
constexpr int kSmallMessages = 200;

// Median after one run to warm up.
double median_nanoseconds(at::Device device, const std::function<void()>& work) {
  work();
  Stopwatch watch(device);
  std::vector<double> times;
  for (int i = 0; i < kRepeats; ++i) {
    watch.start();
    work();
    times.push_back(watch.stop());
  }
  return median(std::move(times));
}

// A lane's weights, their gradients and the optimizer's state.
struct OptimizerState {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> first;
  std::vector<at::Tensor> second;
  std::vector<at::Tensor> steps;

  explicit OptimizerState(const at::TensorOptions& options) {
    for (std::int64_t i = 0; i < kNumbers / kNumbersOfTensor; ++i) {
      parameters.push_back(at::zeros({kNumbersOfTensor}, options));
      gradients.push_back(at::full({kNumbersOfTensor}, 0.1, options));
      first.push_back(at::zeros({kNumbersOfTensor}, options));
      second.push_back(at::zeros({kNumbersOfTensor}, options));
      steps.push_back(at::ones({}, options));
    }
  }

  // The end of a step: the norm, clipping, AdamW.
  void step() {
    double squares = 0;
    for (const at::Tensor& gradient : gradients) {
      const double norm =
          at::linalg_vector_norm(gradient, 2, std::nullopt, false, at::kDouble).item<double>();
      squares += norm * norm;
    }
    for (const at::Tensor& gradient : gradients) {
      gradient.mul_(squares > 0 ? 0.999 : 1.0);
    }
    at::_fused_adamw_(parameters,
                      gradients,
                      first,
                      second,
                      /*max_exp_avg_sqs=*/{},
                      steps,
                      /*lr=*/1e-3,
                      /*beta1=*/0.9,
                      /*beta2=*/0.95,
                      /*weight_decay=*/0.01,
                      /*eps=*/1e-8,
                      /*amsgrad=*/false,
                      /*maximize=*/false);
  }
};

// Between two steps a forward and backward evict the caches: several states in turn
// together exceed them.
double measure_optimizer(at::Device device) {
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device);
  std::vector<OptimizerState> states;
  for (std::size_t i = 0; i < kStates; ++i) {
    states.emplace_back(options);
  }
  std::size_t next = 0;
  const double time = median_nanoseconds(device, [&] { states[next++ % kStates].step(); });
  return time / static_cast<double>(kNumbers);
}

// Gradients are packed, summed and unpacked.
double measure_reduce(at::Device device) {
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device);
  const at::Tensor gradient = at::ones({kNumbers}, options);
  const at::Tensor other = at::zeros({kNumbers}, options);
  const at::Tensor packed = at::zeros({kNumbers}, options);
  const double time = median_nanoseconds(device, [&] {
    packed.copy_(gradient);
    packed.add_(other);
    gradient.copy_(packed);
  });
  return static_cast<double>(kNumbers) * 4 * 1e9 / time;
}

// One rank's part in `count` round trips: rank 0 sends first; each receiver reads the message.
std::vector<double> exchange(Comm& comm, const at::Tensor& message, int count) {
  const int other = 1 - comm.rank();
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    const Clock::time_point start = Clock::now();
    const auto tag = static_cast<std::uint64_t>(i);
    const auto receive = [&] {
      return comm.post_receive({other, comm.rank(), other}, tag, message.sizes().vec(), at::kFloat)
          ->wait()
          .clone();
    };
    if (comm.rank() == 0) {
      comm.send({0, 1, 0}, tag, message);
      receive();
    } else {
      comm.send({1, 0, 1}, tag, receive());
    }
    times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  return times;
}

// Half of the median round trip.
double message_nanoseconds(std::int64_t numbers, int count) {
  ThreadCommGroup group(2);
  const auto run = [&](int rank) {
    try {
      return exchange(group.comm(rank), at::ones({numbers}), count);
    } catch (const std::exception& failure) {
      group.abort(failure.what());
      throw;
    }
  };
  std::future<void> peer = std::async(std::launch::async, [&] {
    const at::NoGradGuard no_grad;
    at::set_num_threads(1);
    run(1);
  });
  std::vector<double> times = run(0);
  peer.get();
  return median(std::move(times)) / 2;
}

LinkSpec measure_link() {
  const double small = message_nanoseconds(1, kSmallMessages);
  const double large = message_nanoseconds(kNumbers, kRepeats);
  LinkSpec link;
  link.latency = std::chrono::nanoseconds(static_cast<std::int64_t>(small));
  link.bytes_per_second = static_cast<double>(kNumbers) * 4 * 1e9 / std::max(1.0, large - small);
  return link;
}

}  // namespace

MachineRates measure_machine(at::Device device) {
  const at::NoGradGuard no_grad;
  MachineRates rates;
  rates.link = measure_link();
  rates.reduce_bytes_per_second = measure_reduce(device);
  rates.optimizer_ns_per_parameter = measure_optimizer(device);
  return rates;
}

}  // namespace entrain::engine
