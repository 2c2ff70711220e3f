#include "entrain/engine/profiler/stage_check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/step_costs.h"

#include "entrain/engine/models/device.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/profiler/layer_cases.h"
#include "entrain/engine/profiler/statistics.h"

namespace entrain::engine {
namespace {

// Samples [first, end) of all that are measured.
struct SlotRange {
  int first = 0;
  int end = 0;
};

// One slot's forward through one stage, with the leaf for its input gradient, and its times.
struct StageCase {
  at::Tensor input;  // undefined where the stage has none (text without images)
  std::function<at::Tensor()> forward;
  StageTime time = {};
  std::vector<double> forward_times = {};  // [repeat]
  std::vector<double> backward_times = {};
};

StageCase encoder_case(const ModelSpec& model,
                       std::shared_ptr<const EncoderStage> stage,
                       int module,
                       LayerRange layers,
                       std::span<const SampleWork> samples,
                       const StageOptions& options) {
  const EncoderSpec& encoder = model.encoders[at(module)];
  const bool first_stage = layers.begin == 0;
  const bool vision = encoder.modality == Modality::kVision;
  const bool frames = first_stage && !vision;
  std::vector<SegmentGrid> grids;
  std::int64_t rows = 0;
  for (const SampleWork& sample : samples) {
    for (const SegmentWork& segment : sample.segments[at(module)]) {
      const std::int64_t class_tokens = segment.canvas.tiles.count() * extra_tokens(encoder);
      const std::int64_t mel = frames ? input_frames(encoder, 2 * segment.tokens) : 0;
      rows += frames ? mel : segment.tokens - (first_stage ? class_tokens : 0);
      grids.push_back(segment_grid(encoder, segment, mel));
    }
  }
  const std::int64_t width = frames        ? encoder.mel_bands
                             : first_stage ? patch_values(encoder)
                                           : output_width(model, module, layers.begin - 1);
  StageCase result;
  result.input = made_up({rows, width}, options);
  result.forward = [stage = std::move(stage), grids, input = result.input] {
    return stage->forward(input, grids);
  };
  return result;
}

// Features are at each sample's front.
StageCase llm_case(const ModelSpec& model,
                   std::shared_ptr<const LlmStage> stage,
                   LayerRange layers,
                   std::span<const SampleWork> samples,
                   const StageOptions& options) {
  const LlmSpec& llm = model.llm;
  const bool first_stage = layers.begin == 0;
  const bool last_stage = layers.end == num_layers(model, model.llm_module());
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> rows;
  std::int64_t tokens = 0;
  for (const SampleWork& sample : samples) {
    std::int64_t position = tokens;
    for (const auto& segments : sample.segments) {
      for (const SegmentWork& segment : segments) {
        for (std::int64_t i = 0; i < segment.llm_tokens; ++i) {
          positions.push_back(position++);
        }
      }
    }
    lengths.push_back(sample.llm_tokens);
    tokens += sample.llm_tokens;
    for (std::int64_t i = sample.target_tokens; i > 0; --i) {
      rows.push_back(std::max<std::int64_t>(0, tokens - 1 - i));
    }
  }
  StageCase result;
  const at::Tensor ids = at::arange(tokens, at::kLong).mul_(7).remainder_(llm.vocab_size);
  const at::Tensor placed = index_tensor(positions, options.device);
  const at::Tensor chosen = index_tensor(rows, options.device);
  const at::Tensor targets = chosen.mul(7).remainder_(llm.vocab_size);
  const std::int64_t input_rows = first_stage ? std::ssize(positions) : tokens;
  if (input_rows > 0) {
    const int before = std::max(0, layers.begin - 1);
    result.input = made_up({input_rows, output_width(model, model.llm_module(), before)}, options);
  }
  result.forward =
      [=, stage = std::move(stage), ids = ids.to(options.device), input = result.input] {
        at::Tensor hidden = first_stage ? stage->embed(ids, input, placed) : input;
        hidden = stage->decode(hidden, lengths);
        return last_stage ? stage->loss_sum(hidden, chosen, targets) : hidden;
      };
  return result;
}

class StageCheck {
 public:
  StageCheck(const ModelSpec& model,
             const Plan& plan,
             const Profile& profile,
             std::span<const std::vector<SampleWork>> slots)
      : model_(model),
        plan_(plan),
        device_(device_of(profile.device)),
        options_({.device = device_,
                  .dtype = profile.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat}) {
    for (const std::vector<SampleWork>& slot : slots) {
      const int first = static_cast<int>(work_.size());
      work_.insert(work_.end(), slot.begin(), slot.end());
      slots_.push_back({first, static_cast<int>(work_.size())});
    }
    costs_ = step_costs(model, plan, profile, work_);
  }

  std::vector<StageTime> run(int repeats, const NanosecondClock& clock) {
    std::vector<StageTime> result;
    Stopwatch watch(device_, clock);
    for (int module = 0; module < model_.num_modules(); ++module) {
      for (int stage = 0; stage < std::ssize(plan_.modules[at(module)].stages); ++stage) {
        run_stage(module, stage, repeats, watch, result);
      }
    }
    return result;
  }

 private:
  void run_stage(
      int module, int stage, int repeats, Stopwatch& watch, std::vector<StageTime>& result) {
    const LayerRange layers = plan_.modules[at(module)].stages[at(stage)];
    const bool input_gradient = input_gradient_wanted(module, layers.begin);
    std::vector<StageCase> cases = make_cases(module, stage, layers);
    for (int repeat = -1; repeat < repeats; ++repeat) {
      for (StageCase& each : cases) {
        const auto [forward, backward] = time_case(each, input_gradient, watch);
        if (repeat >= 0) {
          each.forward_times.push_back(forward);
          each.backward_times.push_back(backward);
        }
      }
    }
    for (StageCase& each : cases) {
      each.time.measured_forward = capped_mean(each.forward_times);
      each.time.measured_backward = capped_mean(each.backward_times);
      result.push_back(each.time);
    }
  }

  // Whether something trainable is nearer the input than this layer of the module.
  [[nodiscard]] bool input_gradient_wanted(int module, int begin) const {
    bool wanted = false;
    const auto look = [&](int of_module, int end) {
      for (int layer = 0; layer < end; ++layer) {
        wanted = wanted || layer_trainable(model_, of_module, layer);
      }
    };
    if (module == model_.llm_module()) {
      for (int encoder = 0; encoder < model_.llm_module(); ++encoder) {
        look(encoder, num_layers(model_, encoder));
      }
    }
    look(module, begin);
    return wanted;
  }

  [[nodiscard]] std::vector<StageCase> make_cases(int module, int stage, LayerRange layers) const {
    std::vector<StageCase> cases;
    std::shared_ptr<const LlmStage> llm;
    std::shared_ptr<const EncoderStage> encoder;
    if (module == model_.llm_module()) {
      llm = std::make_shared<const LlmStage>(model_.llm, layers, options_);
    } else {
      encoder = std::make_shared<const EncoderStage>(
          model_.encoders[at(module)], model_.llm.hidden, layers, options_);
    }
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      const SlotRange range = slots_[s];
      Group group;
      StageTime time;
      time.module = module;
      time.stage = stage;
      time.slot = static_cast<int>(s);
      fill(module, range, group, time);
      if (group.items.empty()) {
        continue;  // a text-only slot has no encoder work
      }
      const auto samples =
          std::span<const SampleWork>(work_).subspan(at(range.first), at(range.end - range.first));
      cases.push_back(llm != nullptr
                          ? llm_case(model_, llm, layers, samples, options_)
                          : encoder_case(model_, encoder, module, layers, samples, options_));
      const UnitKey unit{module, stage, time.slot, 0};
      const auto predicted = [&](OperationKind kind) {
        return static_cast<double>(operation_time(costs_, kind, unit, group).count());
      };
      time.predicted_forward = predicted(OperationKind::kForward);
      time.predicted_backward = predicted(OperationKind::kBackward);
      cases.back().time = time;
    }
    return cases;
  }

  void fill(int module, SlotRange range, Group& group, StageTime& time) const {
    for (int sample = range.first; sample < range.end; ++sample) {
      const int units = module == model_.llm_module()
                            ? 1
                            : static_cast<int>(std::ssize(work_[at(sample)].segments[at(module)]));
      for (int unit = 0; unit < units; ++unit) {
        WorkItem item;
        item.sample = sample;
        item.segment = module == model_.llm_module() ? -1 : unit;
        group.items.push_back(item);
        time.tokens += static_cast<double>(
            costs_.modules[at(module)].tokens[at(costs_.unit_of(module, item))]);
      }
    }
  }

  // Forward and backward of one slot.
  static std::pair<double, double> time_case(const StageCase& stage_case,
                                             bool input_gradient,
                                             Stopwatch& watch) {
    if (stage_case.input.defined()) {
      fresh_leaf(stage_case.input, input_gradient);
    }
    watch.start();
    const at::Tensor output = stage_case.forward();
    const double forward = watch.stop();
    if (!output.requires_grad()) {
      return {forward, 0.0};
    }
    const at::Tensor gradient = at::ones_like(output.detach());
    watch.start();
    output.backward(gradient);
    return {forward, watch.stop()};
  }

  const ModelSpec& model_;
  const Plan& plan_;
  at::Device device_;
  StageOptions options_;
  std::vector<SampleWork> work_;
  std::vector<SlotRange> slots_;
  StepCosts costs_;
};

ErrorSummary summary_of(std::string what, const std::vector<double>& errors) {
  std::vector<double> sizes;
  for (const double error : errors) {
    sizes.push_back(std::abs(error));
  }
  return {std::move(what),
          static_cast<int>(errors.size()),
          median(sizes),
          *std::max_element(sizes.begin(), sizes.end()),
          median(errors)};
}

double relative(double predicted, double measured) {
  return measured > 0 ? (predicted - measured) / measured : predicted > 0 ? 1.0 : 0.0;
}

}  // namespace

double StageTime::error() const {
  return relative(predicted_forward + predicted_backward, measured_forward + measured_backward);
}

std::vector<StageTime> check_stages(const ModelSpec& model,
                                    const Plan& plan,
                                    const Profile& profile,
                                    std::span<const std::vector<SampleWork>> slots,
                                    int repeats,
                                    const NanosecondClock& clock) {
  ENTRAIN_INVARIANT(repeats >= 1, "a check without repeats");
  const OneThread one_thread;
  const c10::AutoGradMode with_gradients(true);
  return StageCheck(model, plan, profile, slots).run(repeats, clock);
}

std::vector<ErrorSummary> summarise(const ModelSpec& model, std::span<const StageTime> times) {
  std::map<std::pair<int, int>, std::pair<std::vector<double>, std::vector<double>>> by_stage;
  std::vector<double> all;
  for (const StageTime& time : times) {
    auto& [forward, backward] = by_stage[{time.module, time.stage}];
    forward.push_back(relative(time.predicted_forward, time.measured_forward));
    backward.push_back(relative(time.predicted_backward, time.measured_backward));
    all.push_back(time.error());
  }
  std::vector<ErrorSummary> result;
  for (const auto& [key, errors] : by_stage) {
    const std::string name = concat(module_name(model, key.first), " ", key.second);
    result.push_back(summary_of(name + " forward", errors.first));
    result.push_back(summary_of(name + " backward", errors.second));
  }
  result.push_back(summary_of("all", all));
  return result;
}

}  // namespace entrain::engine
