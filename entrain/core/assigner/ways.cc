#include "entrain/core/assigner/ways.h"

#include <algorithm>
#include <limits>

namespace entrain {
namespace {

constexpr std::int64_t kNothing = std::numeric_limits<std::int64_t>::min();

}  // namespace

using std::int64_t;

Ways::Ways(const Plan& plan, const StepCosts& costs, BoundMode mode)
    : plan_(plan), costs_(costs), mode_(mode), llm_(costs.llm_module()) {
  for (int m = 0; m <= llm_; ++m) {
    Module& module = modules_.emplace_back();
    module.first_backward = static_cast<int>(costs.modules[at(m)].stages.size());
    for (int s = 0; s < static_cast<int>(costs.modules[at(m)].stages.size()); ++s) {
      const StageCosts& stage = costs.modules[at(m)].stages[at(s)];
      module.stages.push_back(&stage);
      module.lane.push_back(plan.lane_of(m, s));
      if (stage.trainable) {
        module.first_backward = std::min(module.first_backward, s);
        module.trainable = true;
      }
    }
  }
  for (int lane = 0; lane < plan.num_lanes(); ++lane) {
    // Of an overlapped reduction, only a little certainly follows compute.
    const bool at_the_end = plan.replicas > 1 && costs.reduce_buckets == 0;
    reduce_.push_back(at_the_end ? sum_on_lane(lane, &StageCosts::reduce) : 0);
  }
  for (int m = 0; m < llm_; ++m) {
    measure_ways(m);
  }
  collect_samples();
  measure_ways(llm_);
}

int64_t Ways::sum_on_lane(int lane, std::chrono::nanoseconds StageCosts::*field) const {
  int64_t sum = 0;
  for (const StageRef& ref : plan_.lanes[at(lane)]) {
    sum += (modules_[at(ref.module)].stages[at(ref.stage)]->*field).count();
  }
  return sum;
}

int64_t Ways::slowest_optimizer() const {
  int64_t slowest = 0;
  for (int lane = 0; lane < plan_.num_lanes(); ++lane) {
    slowest = std::max(slowest, sum_on_lane(lane, &StageCosts::optimizer));
  }
  return slowest;
}

int64_t Ways::forward(int m, int s, int unit) const {
  const StageCosts& stage = *modules_[at(m)].stages[at(s)];
  if (cut(m)) {
    return stage.launch.forward.count();
  }
  return (stage.units[at(unit)].time.forward + stage.launch.forward).count();
}

int64_t Ways::backward(int m, int s, int unit) const {
  const StageCosts& stage = *modules_[at(m)].stages[at(s)];
  const OperationTimes& time = stage.units[at(unit)].time;
  if (cut(m)) {
    return (mode_ == BoundMode::kFused ? stage.launch.backward() : stage.launch.backward_input)
        .count();
  }
  if (mode_ == BoundMode::kFused) {
    return (time.backward() + stage.launch.backward()).count();
  }
  // Without an input gradient the operation is all weight gradient.
  return time.backward_input.count() > 0
             ? (time.backward_input + stage.launch.backward_input).count()
             : 0;
}

// What follows the input gradient at a stage on its lane: the weight half and the reduction.
int64_t Ways::behind(int m, int s, int unit) const {
  const StageCosts& stage = *modules_[at(m)].stages[at(s)];
  const int64_t weight = mode_ == BoundMode::kSplitInputs && !cut(m)
                             ? stage.units[at(unit)].time.backward_weight.count()
                             : 0;
  return weight + reduce_[at(modules_[at(m)].lane[at(s)])];
}

int64_t Ways::transfer(int m, int s, int unit) const {
  const Module& module = modules_[at(m)];
  const bool last = s + 1 == static_cast<int>(module.stages.size());
  if (last && m == llm_) {
    return 0;
  }
  if (cut(m)) {
    return 0;
  }
  const int next = last ? modules_[at(llm_)].lane[0] : module.lane[at(s + 1)];
  if (next == module.lane[at(s)]) {
    return 0;
  }
  return transfer_time(costs_.link, module.stages[at(s)]->units[at(unit)].output_bytes).count();
}

// Prefix sums over every run's stages, for many ranges.
void Ways::measure_ways(int m) {
  Module& module = modules_[at(m)];
  costs_.modules[at(m)].for_each_run([&](std::size_t /*unit*/, int count) {
    module.run_of.insert(module.run_of.end(), at(count), static_cast<int>(module.counts.size()));
    module.counts.push_back(count);
  });
  const std::size_t size = module.counts.size() * (module.stages.size() + 1);
  module.forward_before.assign(size, 0);
  module.backward_before.assign(size, 0);
  module.latest_before.assign(size, kNothing);
  costs_.modules[at(m)].for_each_run([&](std::size_t first_unit, int /*count*/) {
    const auto unit = static_cast<int>(first_unit);
    const int first = m == llm_ ? first_llm_backward(unit) : module.first_backward;
    for (int s = 0; s < num_stages(m); ++s) {
      const std::size_t here = module.number(unit, s);
      module.forward_before[here + 1] =
          module.forward_before[here] + forward(m, s, unit) + transfer(m, s, unit);
      const bool takes_part = s >= first;
      module.backward_before[here + 1] =
          module.backward_before[here] + (takes_part ? backward(m, s, unit) : 0);
      module.latest_before[here + 1] =
          takes_part ? std::max(module.latest_before[here],
                                behind(m, s, unit) - module.backward_before[here])
                     : kNothing;
    }
  });
}

int64_t Ways::forward_until(int m, int end, int unit) const {
  return modules_[at(m)].forward_before[modules_[at(m)].number(unit, end)];
}

int64_t Ways::forward_from(int m, int begin, int unit) const {
  return forward_until(m, num_stages(m), unit) - forward_until(m, begin, unit);
}

WayBack Ways::way_back(int m, int end, int unit) const {
  const Module& module = modules_[at(m)];
  const std::size_t here = module.number(unit, end);
  const int64_t latest = module.latest_before[here];
  return {module.backward_before[here],
          latest == kNothing ? 0 : module.backward_before[here] + latest};
}

void Ways::collect_samples() {
  samples_.resize(at(costs_.num_samples));
  for (int sample = 0; sample < costs_.num_samples; ++sample) {
    Sample& of = samples_[at(sample)];
    for (int m = 0; m < llm_; ++m) {
      for_each_run(m, sample, [&](int unit, int /*count*/) {
        of.llm_backward = of.llm_backward || modules_[at(m)].trainable;
        const int64_t way = forward_until(m, num_stages(m), unit);
        of.encoder_forward = std::max(of.encoder_forward, way);
        of.least_encoder_forward =
            of.least_encoder_forward == 0 ? way : std::min(of.least_encoder_forward, way);
        of.encoder_backward =
            std::max(of.encoder_backward, way_back(m, num_stages(m), unit).latest);
      });
    }
  }
}

int64_t Ways::llm_round_trip(int sample, int64_t encoder_latest) const {
  const WayBack way = way_back(llm_, num_stages(llm_), sample);
  return forward_until(llm_, num_stages(llm_), sample) + way.latest_with(encoder_latest);
}

}  // namespace entrain
