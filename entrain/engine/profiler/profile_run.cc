#include "entrain/engine/profiler/profile_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <ATen/Parallel.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/progress.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/profiler/companions.h"
#include "entrain/engine/profiler/fit_layer.h"
#include "entrain/engine/profiler/machine.h"
#include "entrain/engine/profiler/measure_layer.h"
#include "entrain/engine/profiler/stopwatch.h"

namespace entrain::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kSoftware = "torch " ENTRAIN_TORCH_VERSION;
constexpr std::int64_t kLeastTokens = 16;
constexpr double kSecondsBetweenWrites = 3;
constexpr std::int64_t kStepsPerLayer = 100;  // of the progress bar

class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

at::ScalarType dtype_of(const std::string& name) {
  if (name == "float32") {
    return at::kFloat;
  }
  if (name == "bfloat16") {
    return at::kBFloat16;
  }
  throw InvalidInput(concat("profile: dtype '", name, "' given; allowed: float32, bfloat16"));
}

void check(const ProfileOptions& options) {
  const std::vector<std::int64_t>& tokens = options.grid.tokens;
  const std::int64_t largest = tokens.empty() ? 0 : tokens.back();
  if (largest < kLeastTokens || options.repeats < kLeastRepeats || !(options.seconds > 0) ||
      options.memory_bytes < 0 || options.lanes < 1) {
    throw InvalidInput(concat("profile: lanes ",
                              options.lanes,
                              ", largest microbatch ",
                              largest,
                              " tokens, repeats ",
                              options.repeats,
                              ", seconds ",
                              options.seconds,
                              ", memory ",
                              options.memory_bytes,
                              " bytes given; at least 1, ",
                              kLeastTokens,
                              ", ",
                              kLeastRepeats,
                              ", more than 0 and at least 0 are needed"));
  }
  for (const int degree : options.tensor_parallel) {
    if (degree < 1) {
      throw InvalidInput(
          concat("profile: tensor_parallel ", degree, " given; at least 1 is needed"));
    }
  }
}

// What two runs must share for one to go on with the other's points.
Json settings_of(const ModelSpec& model, const ProfileOptions& options) {
  return {{"model_digest", shape_digest(model)},
          {"software", kSoftware},
          {"device", options.device},
          {"dtype", options.dtype},
          {"threads", 1},
          {"tokens", options.grid.tokens},
          {"segments", options.grid.segments},
          {"tensor_parallel", options.tensor_parallel},
          {"lanes", options.lanes},
          {"recompute", options.recompute}};
}

// Measures all layers, one after another, and keeps the points.
class Measuring {
 public:
  Measuring(const ModelSpec& model, const ProfileOptions& options)
      : model_(model),
        options_(options),
        device_(device_of(options.device)),
        stage_({.device = device_, .dtype = dtype_of(options.dtype)}),
        choices_(layer_choices(model, options.tensor_parallel)),
        points_(resume_points(options.partial, settings_of(model, options))),
        seconds_before_(points_.seconds),
        progress_("profile", std::ssize(choices_) * kStepsPerLayer) {
    if (choices_.empty()) {
      throw InvalidInput("profile: no degree of tensor parallelism divides any module");
    }
  }

  MeasuredPoints run() {
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (i == points_.layers.size() || !points_.layers[i].complete) {
        measure(i);
      }
      show(static_cast<double>(i + 1));
    }
    progress_.finish();
    return std::move(points_);
  }

 private:
  void measure(std::size_t i) {
    const LayerCases cases = layer_cases(
        model_, choices_[i], options_.grid, stage_, options_.memory_bytes / options_.lanes);
    if (i == points_.layers.size()) {
      MeasuredLayer& layer = points_.layers.emplace_back();
      layer.module = cases.module;
      layer.kind = cases.kind;
      layer.tensor_parallel = cases.tensor_parallel;
    }
    const double began = seconds();
    LayerBudget budget;
    budget.repeats = options_.repeats;
    // What earlier layers left of the time, but no less than an equal share: on a busy machine they
    // take longer, and the last ones would have no sizes left to fit a curve through.
    budget.seconds = std::max((options_.seconds - began) / static_cast<double>(choices_.size() - i),
                              options_.seconds / static_cast<double>(choices_.size()));
    budget.memory_bytes = options_.memory_bytes / options_.lanes;
    budget.recompute = options_.recompute;
    budget.clock = options_.clock;
    std::vector<LayerCases> beside;
    for (int lane = 1; lane < options_.lanes; ++lane) {
      beside.push_back(layer_cases(
          model_, choices_[i], options_.grid, stage_, options_.memory_bytes / options_.lanes));
    }
    const Companions companions(std::move(beside));
    const auto on_point = [&] {
      const double share = (seconds() - began) / std::max(1e-9, budget.seconds);
      show(static_cast<double>(i) + std::min(1.0, share));
    };
    measure_layer(cases, budget, device_, points_.layers[i], on_point, [&] {
      keep(points_.layers[i].complete);
    });
  }

  // So many layers, and part of one, are done.
  void show(double layers) {
    const auto steps = static_cast<std::int64_t>(layers * kStepsPerLayer);
    progress_.advance(std::max<std::int64_t>(0, steps - shown_));
    shown_ = std::max(shown_, steps);
  }

  [[nodiscard]] double seconds() const {
    return seconds_before_ + std::chrono::duration<double>(Clock::now() - start_).count();
  }

  void keep(bool now) {
    points_.seconds = seconds();
    if (options_.partial.empty() || (!now && points_.seconds < next_write_)) {
      return;
    }
    write_file(options_.partial, to_json(points_).dump() + "\n");
    next_write_ = points_.seconds + kSecondsBetweenWrites;
  }

  const ModelSpec& model_;
  const ProfileOptions& options_;
  at::Device device_;
  StageOptions stage_;
  std::vector<LayerChoice> choices_;
  MeasuredPoints points_;
  double seconds_before_;
  double next_write_ = 0;
  std::int64_t shown_ = 0;
  Clock::time_point start_ = Clock::now();
  Progress progress_;
};

}  // namespace

ProfileOptions quick_options(std::int64_t max_tokens) {
  ProfileOptions options;
  for (const std::int64_t share : {16, 4, 1}) {
    options.grid.tokens.push_back(std::max<std::int64_t>(1, max_tokens / share));
  }
  options.grid.segments = {1, 0};
  options.seconds = 20;
  options.recompute = false;
  return options;
}

ProfileOptions full_options(std::int64_t max_tokens) {
  ProfileOptions options;
  for (std::int64_t tokens = 64; tokens < max_tokens; tokens *= 2) {
    options.grid.tokens.push_back(tokens);
  }
  options.grid.tokens.push_back(max_tokens);
  options.grid.segments = {1, 4, 16};
  options.seconds = 180;
  return options;
}

ProfileRun measure_profile(const ModelSpec& model, const ProfileOptions& options) {
  check(options);
  if (options.lanes > 1 && options.device != "cpu") {
    throw InvalidInput(concat("profile: lanes ",
                              options.lanes,
                              " given for device '",
                              options.device,
                              "'; lanes share a machine on the cpu alone"));
  }
  const OneThread one_thread;
  const c10::AutoGradMode with_gradients(true);
  ProfileRun run;
  run.points = Measuring(model, options).run();
  const MachineRates machine = measure_machine(device_of(options.device));
  Profile& profile = run.profile;
  profile.device = options.device;
  profile.dtype = options.dtype;
  profile.source = "measured";
  profile.model_digest = shape_digest(model);
  profile.command = options.command;
  profile.software = kSoftware;
  profile.threads = 1;
  for (const MeasuredLayer& layer : run.points.layers) {
    profile.layers.push_back(fit_layer(model, layer, options.dtype, machine.link));
  }
  profile.link = machine.link;
  profile.reduce_bytes_per_second = machine.reduce_bytes_per_second;
  profile.optimizer_ns_per_parameter = machine.optimizer_ns_per_parameter;
  validate(profile, model, "measured profile");
  return run;
}

}  // namespace entrain::engine
