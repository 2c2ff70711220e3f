#include "entrain/engine/profiler/quick_profile.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <time.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/progress.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/profiler/fit.h"
#include "entrain/engine/profiler/layer_cases.h"
#include "entrain/engine/profiler/machine.h"

namespace entrain::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLeastRepeats = 3;

class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// Adds up what this thread allocates and frees on the CPU while it is in force.
class LiveBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*pointer*/,
                         std::int64_t size,
                         std::size_t /*allocated*/,
                         std::size_t /*reserved*/,
                         c10::Device /*device*/) override {
    bytes_ += size;
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

struct StepTimes {
  double forward = 0;   // nanoseconds
  double backward = 0;  // nanoseconds
};

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

// Processor time of this thread in nanoseconds. Layers run in it alone and never wait, so on a
// quiet machine this is wall time; on a busy one it leaves out the turns of others.
double thread_time() {
  timespec now{};
  const int status = clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  ENTRAIN_INVARIANT(status == 0, "the thread's processor time cannot be read");
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

void set_trainable(const LayerCases& layer, bool trainable) {
  for (const NamedParameter& parameter : layer.parameters) {
    parameter.tensor.set_requires_grad(trainable);
  }
}

// Weight gradients stay and are added to, as over the microbatches of a step; the input is a fresh
// leaf each time, as a received activation is.
StepTimes run_once(const LayerCase& layer_case) {
  at::Tensor input = layer_case.input;
  input.set_requires_grad(true);
  input.mutable_grad() = at::Tensor();
  StepTimes times;
  const double start = thread_time();
  const at::Tensor output = layer_case.forward();
  times.forward = thread_time() - start;
  const at::Tensor gradient = at::ones_like(output.detach());
  const double middle = thread_time();
  output.backward(gradient);
  times.backward = thread_time() - middle;
  return times;
}

// All measurements of one point.
struct Samples {
  std::vector<double> forward;         // with trainable weights
  std::vector<double> backward;        // with trainable weights
  std::vector<double> backward_input;  // with frozen weights
};

void measure_round(const LayerCases& layer, std::vector<Samples>& samples, Progress& progress) {
  for (std::size_t i = 0; i < layer.cases.size(); ++i) {
    set_trainable(layer, true);
    const StepTimes full = run_once(layer.cases[i]);
    set_trainable(layer, false);
    const StepTimes frozen = run_once(layer.cases[i]);
    samples[i].forward.push_back(full.forward);
    samples[i].backward.push_back(full.backward);
    samples[i].backward_input.push_back(frozen.backward);
    progress.advance();
  }
}

double activation_bytes_per_token(const LayerCases& layer) {
  const LayerCase& largest = layer.cases.back();
  set_trainable(layer, true);
  at::Tensor input = largest.input;
  input.set_requires_grad(true);
  const auto live = std::make_shared<LiveBytes>();
  at::Tensor output;
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
    output = largest.forward();
  }
  const auto kept = static_cast<double>(live->bytes()) - static_cast<double>(output.nbytes()) +
                    static_cast<double>(input.nbytes());
  return std::max(0.0, kept) / largest.tokens;
}

LayerProfile fit_layer(const LayerCases& layer, const std::vector<Samples>& samples) {
  std::vector<CostPoint> forward;
  std::vector<CostPoint> backward_input;
  std::vector<CostPoint> backward_weight;
  for (std::size_t i = 0; i < layer.cases.size(); ++i) {
    const double pairs = layer.cases[i].attention_pairs;
    const double tokens = layer.cases[i].tokens;
    const double backward = median(samples[i].backward);
    const double input = median(samples[i].backward_input);
    forward.push_back({pairs, tokens, median(samples[i].forward)});
    backward_input.push_back({pairs, tokens, input});
    backward_weight.push_back({pairs, tokens, std::max(0.0, backward - input), backward});
  }
  LayerProfile profile;
  profile.module = layer.module;
  profile.kind = layer.kind;
  profile.forward = fit_curve(forward, layer.terms);
  profile.backward_input = fit_curve(backward_input, layer.terms);
  // Attention has no weights.
  profile.backward_weight = fit_curve(backward_weight, CurveTerms::kLinear);
  profile.activation_bytes_per_token = activation_bytes_per_token(layer);
  profile.output_bytes_per_token = layer.output_bytes_per_token;
  return profile;
}

void check(const QuickProfileOptions& options) {
  if (options.max_tokens < 16 || options.repeats < kLeastRepeats || !(options.seconds > 0)) {
    throw InvalidInput(concat("quick profile: max_tokens ",
                              options.max_tokens,
                              ", repeats ",
                              options.repeats,
                              ", seconds ",
                              options.seconds,
                              " given; at least 16, ",
                              kLeastRepeats,
                              " and more than 0 are needed"));
  }
}

}  // namespace

Profile quick_profile(const ModelSpec& model, const QuickProfileOptions& options) {
  check(options);
  const OneThread one_thread;
  const c10::AutoGradMode with_gradients(true);
  const std::vector<LayerCases> layers = layer_cases(model, options.max_tokens);
  std::vector<std::vector<Samples>> samples;
  std::int64_t num_points = 0;
  for (const LayerCases& layer : layers) {
    samples.emplace_back(layer.cases.size());
    num_points += std::ssize(layer.cases);
  }
  Progress progress("profile", num_points * (options.repeats + 1));
  const Clock::time_point start = Clock::now();
  for (int round = -1; round < options.repeats; ++round) {
    if (round >= kLeastRepeats && since(start) > options.seconds * 1e9) {
      break;
    }
    for (std::size_t i = 0; i < layers.size(); ++i) {
      measure_round(layers[i], samples[i], progress);
    }
    if (round < 0) {
      // The first round only warms up caches, allocator and gradients.
      for (std::vector<Samples>& of_layer : samples) {
        of_layer.assign(of_layer.size(), {});
      }
    }
  }
  progress.finish();
  Profile profile;
  profile.device = options.device;
  profile.source = "measured";
  profile.model_digest = shape_digest(model);
  profile.command = options.command;
  profile.threads = 1;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    profile.layers.push_back(fit_layer(layers[i], samples[i]));
  }
  const MachineRates machine = measure_machine();
  profile.link.latency = machine.handover;
  profile.link.bytes_per_second = machine.copy_bytes_per_second;
  profile.reduce_bytes_per_second = machine.reduce_bytes_per_second;
  profile.optimizer_ns_per_parameter = machine.optimizer_ns_per_parameter;
  validate(profile, model, "quick profile");
  return profile;
}

}  // namespace entrain::engine
