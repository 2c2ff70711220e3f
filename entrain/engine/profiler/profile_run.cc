#include "entrain/engine/profiler/profile_run.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/json_text.h"
#include "entrain/core/base/progress.h"
#include "entrain/core/base/text.h"
#include "entrain/core/spec/training.h"

#include "entrain/engine/models/device.h"
#include "entrain/engine/profiler/background_load.h"
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

// The settings that must match for one run to continue with another's points.
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

// Memory limit of the layers measured in turn; one more may exceed it.
constexpr double kBytesTogether = 512.0 * (1 << 20);

// Weights with their gradients, and inputs.
double held_bytes(const LayerCases& cases) {
  double bytes = 0;
  for (const std::vector<NamedParameter>& layer : cases.layers) {
    bytes += 2 * static_cast<double>(weight_bytes(layer));
  }
  for (const LayerCase& layer_case : cases.cases) {
    bytes += layer_case.input.defined() ? static_cast<double>(layer_case.input.nbytes()) : 0.0;
  }
  return bytes;
}

// Measures all layers, several in turn, and keeps the points.
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
        progress_("profile", std::ssize(choices_) * kStepsPerLayer, ProgressUnit::kShare) {
    if (choices_.empty()) {
      throw InvalidInput("profile: no degree of tensor parallelism divides any module");
    }
    points_.layers.reserve(choices_.size());  // measurements refer to them
  }

  MeasuredPoints run() {
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (i < points_.layers.size() && points_.layers[i].complete) {
        continue;
      }
      warm_up(i);
      if (held_bytes_ > kBytesTogether) {
        run_rounds();
      }
    }
    run_rounds();
    keep(true);
    show();
    progress_.finish();
    return std::move(points_);
  }

 private:
  struct InTurn {
    std::vector<LayerCases> beside;  // run by other lanes meanwhile
    std::unique_ptr<LayerMeasurement> measurement;
  };

  void warm_up(std::size_t i) {
    const auto cases_of_layer = [&] {
      return layer_cases(
          model_, choices_[i], options_.grid, stage_, options_.memory_bytes / options_.lanes);
    };
    LayerCases cases = cases_of_layer();
    if (i == points_.layers.size()) {
      MeasuredLayer& layer = points_.layers.emplace_back();
      layer.module = cases.module;
      layer.kind = cases.kind;
      layer.tensor_parallel = cases.tensor_parallel;
    }
    InTurn next;
    for (int lane = 1; lane < options_.lanes; ++lane) {
      next.beside.push_back(cases_of_layer());
    }
    held_bytes_ += held_bytes(cases) * options_.lanes;
    const LayerBudget budget = {.repeats = options_.repeats,
                                .seconds = seconds_for(i),
                                .memory_bytes = options_.memory_bytes / options_.lanes,
                                .recompute = options_.recompute,
                                .clock = options_.clock};
    {
      const BackgroundLoad load(next.beside);
      next.measurement = std::make_unique<LayerMeasurement>(
          std::move(cases), budget, device_, points_.layers[i], [this] { show(); });
    }
    in_turn_.push_back(std::move(next));
    keep(false);
  }

  // For the next layer: its share of the remaining time, without that of layers in turn, but no
  // less than its share of the whole. On a busy machine earlier layers take longer, and the last
  // would have too few sizes for a fit.
  [[nodiscard]] double seconds_for(std::size_t i) const {
    double left = options_.seconds - seconds();
    for (const InTurn& other : in_turn_) {
      left -= other.measurement->wanted_seconds();
    }
    return std::max(left / weight_from(i), options_.seconds / weight_from(0)) * weight_of(i);
  }

  // Transformer layers are most of a stage, and need enough sizes to separate attention.
  [[nodiscard]] double weight_of(std::size_t i) const {
    const LayerChoice& choice = choices_[i];
    return has_attention(layer_kind(model_, choice.module, choice.layer)) ? 3 : 1;
  }
  [[nodiscard]] double weight_from(std::size_t first) const {
    double sum = 0;
    for (std::size_t i = first; i < choices_.size(); ++i) {
      sum += weight_of(i);
    }
    return sum;
  }

  // Measures a round of the layer with the least progress, until all are done: all are spread over
  // the time.
  void run_rounds() {
    while (true) {
      InTurn* next = nullptr;
      for (InTurn& turn : in_turn_) {
        if (turn.measurement->wants_more() &&
            (next == nullptr || turn.measurement->progress() < next->measurement->progress())) {
          next = &turn;
        }
      }
      if (next == nullptr) {
        break;
      }
      const BackgroundLoad load(next->beside);
      next->measurement->run_round();
      keep(false);
    }
    in_turn_.clear();
    held_bytes_ = 0;
  }

  // Progress: complete layers, plus parts of those in turn.
  void show() {
    double layers = 0;
    for (const MeasuredLayer& layer : points_.layers) {
      layers += layer.complete ? 1.0 : 0.0;
    }
    for (const InTurn& turn : in_turn_) {
      if (turn.measurement->wants_more()) {
        layers += std::min(1.0, turn.measurement->progress());
      }
    }
    const auto steps = static_cast<std::int64_t>(layers * kStepsPerLayer);
    progress_.reach(steps);
  }

  [[nodiscard]] double seconds() const {
    return seconds_before_ + std::chrono::duration<double>(Clock::now() - start_).count();
  }

  void keep(bool now) {
    points_.seconds = seconds();
    if (options_.partial.empty() || (!now && points_.seconds < next_write_)) {
      return;
    }
    write_file(options_.partial, json_text(to_json(points_)) + "\n");
    next_write_ = points_.seconds + kSecondsBetweenWrites;
  }

  const ModelSpec& model_;
  const ProfileOptions& options_;
  at::Device device_;
  StageOptions stage_;
  std::vector<LayerChoice> choices_;
  MeasuredPoints points_;
  std::vector<InTurn> in_turn_;
  double held_bytes_ = 0;  // by their cases
  double seconds_before_;
  double next_write_ = 0;
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

ProfileRun measure_profile(const ModelSpec& given, const ProfileOptions& options) {
  check(options);
  if (options.lanes > 1 && options.device != "cpu") {
    throw InvalidInput(concat("profile: lanes ",
                              options.lanes,
                              " given for device '",
                              options.device,
                              "'; several lanes are supported only on the cpu"));
  }
  const OneThread one_thread;
  const c10::AutoGradMode with_gradients(true);
  const ModelSpec model = without_lora(given);
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
