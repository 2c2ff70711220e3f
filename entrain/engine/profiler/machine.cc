#include "entrain/engine/profiler/machine.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <ATen/ATen.h>

#include "entrain/core/base/errors.h"

namespace entrain::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kNumbers = std::int64_t{1} << 22U;  // 16 MiB of float32
constexpr int kRepeats = 7;
constexpr int kHandovers = 200;

double nanoseconds_of(const std::function<void()>& work) {
  const Clock::time_point start = Clock::now();
  work();
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

// Median after one run to warm up.
double median_nanoseconds(const std::function<void()>& work) {
  work();
  std::vector<double> times;
  for (int i = 0; i < kRepeats; ++i) {
    times.push_back(nanoseconds_of(work));
  }
  return median(std::move(times));
}

double measure_optimizer() {
  const std::vector<at::Tensor> parameters = {at::zeros({kNumbers})};
  const std::vector<at::Tensor> gradients = {at::full({kNumbers}, 0.1)};
  const std::vector<at::Tensor> first = {at::zeros({kNumbers})};
  const std::vector<at::Tensor> second = {at::zeros({kNumbers})};
  const std::vector<at::Tensor> steps = {at::ones({})};
  const double time = median_nanoseconds([&] {
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
  });
  return time / static_cast<double>(kNumbers);
}

// Half of the median round trip of a token between two threads through a mailbox.
std::chrono::nanoseconds measure_handover() {
  std::mutex mutex;
  std::condition_variable changed;
  int turn = 0;  // even: this thread's, odd: the other's
  const auto pass = [&](int expected) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return turn == expected; });
    ++turn;
    changed.notify_all();
  };
  std::thread other([&] {
    for (int i = 0; i < kHandovers; ++i) {
      pass(2 * i + 1);
    }
  });
  std::vector<double> times;
  for (int i = 0; i < kHandovers; ++i) {
    times.push_back(nanoseconds_of([&] {
      pass(2 * i);
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return turn == 2 * i + 2; });
    }));
  }
  other.join();
  return std::chrono::nanoseconds(static_cast<std::int64_t>(median(std::move(times)) / 2));
}

}  // namespace

double median(std::vector<double> values) {
  ENTRAIN_INVARIANT(!values.empty(), "the median of nothing");
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

MachineRates measure_machine() {
  const at::NoGradGuard no_grad;
  MachineRates rates;
  const double bytes = static_cast<double>(kNumbers) * 4;
  const at::Tensor source = at::ones({kNumbers});
  const at::Tensor target = at::zeros({kNumbers});
  rates.copy_bytes_per_second = bytes * 1e9 / median_nanoseconds([&] { target.copy_(source); });
  // Gradients are packed, summed and unpacked.
  const at::Tensor packed = at::zeros({kNumbers});
  rates.reduce_bytes_per_second = bytes * 1e9 / median_nanoseconds([&] {
                                    packed.copy_(source);
                                    packed.add_(target);
                                    source.copy_(packed);
                                  });
  rates.optimizer_ns_per_parameter = measure_optimizer();
  rates.handover = measure_handover();
  return rates;
}

}  // namespace entrain::engine
