#include "entrain/core/planner/layer_figures.h"

#include <algorithm>
#include <array>
#include <limits>

#include "entrain/core/cost/step_costs.h"

namespace entrain {
namespace {

using std::int64_t;

constexpr std::size_t kClasses = 3;  // first layer, those between, last layer

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// Three stages a module, at each module's degrees of this index (its last where it has fewer).
Plan probe_plan(const ModelSpec& model,
                const std::vector<std::vector<Degrees>>& degrees,
                std::size_t index,
                int replicas) {
  Plan plan;
  plan.replicas = replicas;
  for (int module = 0; module < model.num_modules(); ++module) {
    ModulePlan& part = plan.modules.emplace_back();
    const Degrees& own = degrees[at(module)][std::min(index, degrees[at(module)].size() - 1)];
    part.name = module_name(model, module);
    part.tensor_parallel = own.tensor_parallel;
    part.context_parallel = own.context_parallel;
    const int layers = num_layers(model, module);
    part.stages = {{0, 1}, {1, layers - 1}, {layers - 1, layers}};
  }
  plan.lanes = default_lanes(plan.modules);
  return plan;
}

std::size_t most_degrees(const std::vector<std::vector<Degrees>>& degrees) {
  std::size_t most = 0;
  for (const std::vector<Degrees>& of_module : degrees) {
    most = std::max(most, of_module.size());
  }
  return most;
}

// [layer] each class's number shared out among its layers, rounded down, never below 0.
std::vector<int64_t> per_layer(const std::array<int64_t, kClasses>& sums, int layers) {
  std::vector<int64_t> result(at(layers), std::max<int64_t>(0, sums[1]) / (layers - 2));
  result.front() = std::max<int64_t>(0, sums[0]);
  result.back() = std::max<int64_t>(0, sums[2]);
  return result;
}

bool any_trainable(const ModelSpec& model, int module) {
  for (int layer = 0; layer < num_layers(model, module); ++layer) {
    if (layer_trainable(model, module, layer)) {
      return true;
    }
  }
  return false;
}

// Reads the figures of one module out of the costs of probe plans.
class Reader {
 public:
  Reader(const ModelSpec& model, int module, const FigureOptions& options)
      : model_(model),
        module_(module),
        options_(options),
        llm_(module == model.llm_module()),
        layers_(num_layers(model, module)) {
    for (int m = 0; m < model.num_modules(); ++m) {
      trainable_.push_back(any_trainable(model, m) ? 1 : 0);
    }
    least_forward_.fill(kNone);
    least_backward_.fill(kNone);
  }

  void add(const StepCosts& costs) {
    const ModuleCosts& module = costs.modules[at(module_)];
    std::array<int64_t, kClasses> work{};
    std::vector<int64_t>& chains = figures_.chain_ns.emplace_back();
    int64_t units = 0;
    for (int sample = 0; sample < costs.num_samples; ++sample) {
      const bool backward = takes_backward(costs, sample);
      int64_t longest = 0;
      for (int unit = module.first_unit[at(sample)]; unit < module.first_unit[at(sample + 1)];
           ++unit) {
        ++units;
        longest = std::max(longest, add_unit(module, at(unit), backward, work));
      }
      chains.push_back(llm_ && options_.chunks ? 0 : longest);
    }
    // Three operations, each off by half a nanosecond at most: in the probe and in a stage.
    const int64_t rounding = (3 * units + 1) / 2;
    for (int64_t& sum : work) {
      sum -= rounding;
    }
    figures_.work_ns.push_back(per_layer(work, layers_));
    figures_.rounding_ns.push_back(rounding);
    for (std::size_t c = 0; c < kClasses; ++c) {
      launch_[c] = module.stages[c].launch;
    }
  }

  LayerFigures finish() {
    std::array<int64_t, kClasses> forward{};
    std::array<int64_t, kClasses> backward{};
    std::array<int64_t, kClasses> launch{};
    for (std::size_t c = 0; c < kClasses; ++c) {
      const OperationTimes& once = launch_[c];
      const int64_t back =
          (options_.splits_backward ? once.backward_input : once.backward()).count();
      launch[c] = (once.forward + once.backward()).count();
      const bool whole = least_forward_[c] != kNone && !(llm_ && options_.chunks);
      const bool runs = whole ? least_backward_[c] > 0 : llm_ && trainable_.back() != 0;
      // A unit's times and a launch's are each off by half a nanosecond an operation.
      forward[c] = once.forward.count() + (whole ? least_forward_[c] : 0) - 1;
      backward[c] = runs ? back + (whole ? least_backward_[c] : 0) - 2 : 0;
    }
    figures_.launch_ns = per_layer(launch, layers_);
    figures_.least_forward_ns = less(per_layer(forward, layers_), 1);
    figures_.least_backward_ns = less(per_layer(backward, layers_), 2);
    figures_.unit_bytes = per_layer(unit_bytes_, layers_);
    return figures_;
  }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  static std::vector<int64_t> less(std::vector<int64_t> values, int64_t rounding) {
    for (int64_t& value : values) {
      value = std::max<int64_t>(0, value - rounding);
    }
    return values;
  }

  // Whether training certainly runs the LLM's backward of this sample (an encoder's costs know).
  [[nodiscard]] bool takes_backward(const StepCosts& costs, int sample) const {
    bool result = !llm_ || trainable_.back() != 0;
    for (int m = 0; m < model_.llm_module() && !result; ++m) {
      const std::vector<int>& first = costs.modules[at(m)].first_unit;
      result = trainable_[at(m)] != 0 && first[at(sample)] < first[at(sample + 1)];
    }
    return result;
  }

  // Adds the unit's work; its way through the module and back.
  int64_t add_unit(const ModuleCosts& module,
                   std::size_t unit,
                   bool backward,
                   std::array<int64_t, kClasses>& work) {
    int64_t chain = 0;
    std::array<int64_t, kClasses> bytes{};
    for (std::size_t c = 0; c < kClasses; ++c) {
      const StageCosts& stage = module.stages[c];
      const UnitCost& cost = stage.units[unit];
      const int64_t forward = cost.time.forward.count();
      const int64_t whole = backward ? cost.time.backward().count() : 0;
      const int64_t input = backward ? cost.time.backward_input.count() : 0;
      work[c] += forward + whole;
      least_forward_[c] = std::min(least_forward_[c], forward);
      least_backward_[c] = std::min(least_backward_[c], options_.splits_backward ? input : whole);
      chain += forward + stage.launch.forward.count();
      if (options_.splits_backward) {
        chain += input > 0 ? input + stage.launch.backward_input.count() : 0;
      } else {
        chain += whole > 0 ? whole + stage.launch.backward().count() : 0;
      }
      bytes[c] = cost.activation_bytes;
    }
    if (bytes[0] + bytes[1] + bytes[2] > unit_bytes_[0] + unit_bytes_[1] + unit_bytes_[2] &&
        !(llm_ && options_.chunks)) {
      unit_bytes_ = bytes;
    }
    // Up to six roundings a stage, and as many in each class here.
    return std::max<int64_t>(0, chain - 3 * (layers_ + static_cast<int64_t>(kClasses)));
  }

  const ModelSpec& model_;
  int module_;
  FigureOptions options_;
  bool llm_;
  int layers_;
  std::vector<char> trainable_;  // [module] anything in it
  LayerFigures figures_;
  std::array<int64_t, kClasses> least_forward_{};
  std::array<int64_t, kClasses> least_backward_{};
  std::array<int64_t, kClasses> unit_bytes_{};
  std::array<OperationTimes, kClasses> launch_{};
};

}  // namespace

std::vector<std::vector<LayerFigures>> layer_figures(
    const ModelSpec& model,
    const Profile& profile,
    const Batches& batches,
    const std::vector<std::vector<Degrees>>& degrees,
    const FigureOptions& options) {
  std::vector<std::vector<LayerFigures>> result(degrees.size());
  for (std::size_t index = 0; index < most_degrees(degrees); ++index) {
    const Plan plan = probe_plan(model, degrees, index, 1);
    std::vector<Reader> readers;
    for (int module = 0; module < model.num_modules(); ++module) {
      readers.emplace_back(model, module, options);
    }
    for (const std::vector<SampleWork>& batch : batches) {
      const StepCosts costs = step_costs(model, plan, profile, batch);
      for (std::size_t module = 0; module < degrees.size(); ++module) {
        if (index < degrees[module].size()) {
          readers[module].add(costs);
        }
      }
    }
    for (std::size_t module = 0; module < degrees.size(); ++module) {
      if (index < degrees[module].size()) {
        result[module].push_back(readers[module].finish());
      }
    }
  }
  return result;
}

std::vector<std::vector<ReplicaFigures>> replica_figures(
    const ModelSpec& model,
    const Profile& profile,
    const std::vector<std::vector<Degrees>>& degrees,
    int replicas,
    const StateOptions& state_options) {
  std::vector<std::vector<ReplicaFigures>> result(degrees.size());
  for (std::size_t index = 0; index < most_degrees(degrees); ++index) {
    const Plan plan = probe_plan(model, degrees, index, replicas);
    const StepCosts costs = step_costs(model, plan, profile, {});
    const std::vector<LaneState> states = lane_states(model, plan, state_options);
    for (std::size_t module = 0; module < degrees.size(); ++module) {
      if (index >= degrees[module].size()) {
        continue;
      }
      std::array<int64_t, kClasses> reduce{};
      std::array<int64_t, kClasses> optimizer{};
      std::array<int64_t, kClasses> state{};
      for (std::size_t c = 0; c < kClasses; ++c) {
        const StageCosts& stage = costs.modules[module].stages[c];
        reduce[c] = replicas > 1 ? stage.reduce.count() - 1 : 0;
        optimizer[c] = stage.optimizer.count() - 1;
        state[c] = states[module * kClasses + c].total_bytes();
      }
      const int layers = num_layers(model, static_cast<int>(module));
      result[module].push_back(
          {per_layer(reduce, layers), per_layer(optimizer, layers), per_layer(state, layers)});
    }
  }
  return result;
}

}  // namespace entrain
