#include "entrain/core/planner/layer_figures.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/parameters.h"
#include "entrain/core/spec/training.h"

namespace entrain {
namespace {

using std::int64_t;

// Whether two layers of a module cost the same: of one kind, with as many numbers trained.
bool are_alike(const ModelSpec& model, int module, int one, int other) {
  return layer_kind(model, module, one) == layer_kind(model, module, other) &&
         count_parameters(model, module, one) == count_parameters(model, module, other);
}

// Neighbours that are alike, from the first layer to the last.
std::vector<LayerRange> runs_of_kinds(const ModelSpec& model, int module) {
  std::vector<LayerRange> runs;
  for (int layer = 0; layer < num_layers(model, module); ++layer) {
    if (runs.empty() || !are_alike(model, module, runs.back().begin, layer)) {
      runs.push_back({layer, layer});
    }
    ++runs.back().end;
  }
  return runs;
}

// A stage a run, at each module's degrees of this index (its last where it has fewer).
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
    part.stages = runs_of_kinds(model, module);
  }
  plan.lanes = default_lanes(plan.modules);
  return plan;
}

// A batch with runs of equal segments, such as a video's frames, as one segment each.
struct DistinctUnits {
  std::vector<SampleWork> samples;
  std::vector<std::vector<int>> repeats;  // [module][unit] number of equal segments
};

DistinctUnits distinct_units(const std::vector<SampleWork>& batch, int num_modules) {
  DistinctUnits result;
  result.samples = batch;
  result.repeats.resize(at(num_modules));
  result.repeats.back().assign(batch.size(), 1);
  for (SampleWork& sample : result.samples) {
    for (std::size_t module = 0; module < sample.segments.size(); ++module) {
      std::vector<SegmentWork> kept;
      for (const SegmentWork& segment : sample.segments[module]) {
        if (!kept.empty() && kept.back() == segment) {
          ++result.repeats[module].back();
        } else {
          kept.push_back(segment);
          result.repeats[module].push_back(1);
        }
      }
      sample.segments[module] = std::move(kept);
    }
  }
  return result;
}

std::size_t most_degrees(const std::vector<std::vector<Degrees>>& degrees) {
  std::size_t most = 0;
  for (const std::vector<Degrees>& of_module : degrees) {
    most = std::max(most, of_module.size());
  }
  return most;
}

// [layer] each run's number shared out among its layers, rounded down, never below 0.
std::vector<int64_t> per_layer(const std::vector<int64_t>& sums,
                               const std::vector<LayerRange>& runs) {
  std::vector<int64_t> result;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const int layers = runs[run].end - runs[run].begin;
    result.insert(result.end(), at(layers), std::max<int64_t>(0, sums[run]) / layers);
  }
  return result;
}

// Refuses what step_costs() would refuse for the whole batch.
void add_repeated(int64_t value, int repeats, int64_t& sum) {
  constexpr int64_t kMost = int64_t{1} << 62;
  if (value > (kMost - sum) / repeats) {
    throw InvalidInput("the batch needs more than 2^62 ns in all: check sizes and profile");
  }
  sum += repeats * value;
}

// Reads the figures of one module out of the costs of probe plans.
class Reader {
 public:
  Reader(const ModelSpec& model, int module, const FigureOptions& options)
      : model_(model),
        module_(module),
        options_(options),
        llm_(module == model.llm_module()),
        layers_(num_layers(model, module)),
        runs_(runs_of_kinds(model, module)),
        least_forward_(runs_.size(), kNone),
        least_backward_(runs_.size(), kNone),
        unit_bytes_(runs_.size(), 0),
        launch_(runs_.size()) {
    for (int m = 0; m < model.num_modules(); ++m) {
      trainable_.push_back(any_trainable(model, m) ? 1 : 0);
    }
  }

  // repeats: [unit] how often the batch has it.
  void add(const StepCosts& costs, const std::vector<int>& repeats) {
    const ModuleCosts& module = costs.modules[at(module_)];
    std::vector<int64_t> work(runs_.size());
    std::vector<int64_t>& chains = figures_.chain_ns.emplace_back();
    int64_t units = 0;
    for (int sample = 0; sample < costs.num_samples; ++sample) {
      const bool backward = takes_backward(costs, sample);
      int64_t longest = 0;
      for (int unit = module.first_unit[at(sample)]; unit < module.first_unit[at(sample + 1)];
           ++unit) {
        units += repeats[at(unit)];
        longest = std::max(longest, add_unit(module, at(unit), repeats[at(unit)], backward, work));
        keep_largest(module, unit, costs.work[at(sample)], unit - module.first_unit[at(sample)]);
      }
      chains.push_back(llm_ && options_.chunks ? 0 : longest);
    }
    // Three operations, each off by half a nanosecond at most: in the probe and in a stage.
    const int64_t rounding = (3 * units + 1) / 2;
    for (int64_t& sum : work) {
      sum -= rounding;
    }
    figures_.work_ns.push_back(per_layer(work, runs_));
    figures_.rounding_ns.push_back(rounding);
    for (std::size_t c = 0; c < runs_.size(); ++c) {
      launch_[c] = module.stages[c].launch;
    }
  }

  // Bytes alone.
  void add_further(const StepCosts& costs) {
    const ModuleCosts& module = costs.modules[at(module_)];
    for (int sample = 0; sample < costs.num_samples; ++sample) {
      for (int unit = module.first_unit[at(sample)]; unit < module.first_unit[at(sample + 1)];
           ++unit) {
        keep_largest(module, unit, costs.work[at(sample)], unit - module.first_unit[at(sample)]);
      }
    }
  }

  LayerFigures finish() {
    std::vector<int64_t> forward(runs_.size());
    std::vector<int64_t> backward(runs_.size());
    std::vector<int64_t> launch(runs_.size());
    for (std::size_t c = 0; c < runs_.size(); ++c) {
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
    figures_.launch_ns = per_layer(launch, runs_);
    figures_.least_forward_ns = less(per_layer(forward, runs_), 1);
    figures_.least_backward_ns = less(per_layer(backward, runs_), 2);
    figures_.unit_bytes = per_layer(unit_bytes_, runs_);
    figures_.recomputed_bytes = figures_.unit_bytes;
    return figures_;
  }

  // The sample of the largest unit, and the unit's number in it; without tokens where there is
  // none.
  [[nodiscard]] const SampleWork& largest_sample() const { return largest_; }
  // `costs` of largest_sample() alone, every layer recomputed; the figures that finish() gave.
  void read_recomputed(const StepCosts& costs, LayerFigures& figures) const {
    if (most_bytes_ == 0) {
      return;
    }
    std::vector<int64_t> bytes;
    for (std::size_t c = 0; c < runs_.size(); ++c) {
      bytes.push_back(costs.modules[at(module_)].stages[c].units[at(number_)].activation_bytes);
    }
    figures.recomputed_bytes = per_layer(bytes, runs_);
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

  // Adds the work of `repeats` units like this one; one unit's forward and backward path.
  int64_t add_unit(const ModuleCosts& module,
                   std::size_t unit,
                   int repeats,
                   bool backward,
                   std::vector<int64_t>& work) {
    int64_t chain = 0;
    for (std::size_t c = 0; c < runs_.size(); ++c) {
      const StageCosts& stage = module.stages[c];
      const UnitCost& cost = stage.units[unit];
      const int64_t forward = cost.time.forward.count();
      const int64_t whole = backward ? cost.time.backward().count() : 0;
      const int64_t input = backward ? cost.time.backward_input.count() : 0;
      add_repeated(forward + whole, repeats, work[c]);
      least_forward_[c] = std::min(least_forward_[c], forward);
      least_backward_[c] = std::min(least_backward_[c], options_.splits_backward ? input : whole);
      chain += forward + stage.launch.forward.count();
      if (options_.splits_backward) {
        chain += input > 0 ? input + stage.launch.backward_input.count() : 0;
      } else {
        chain += whole > 0 ? whole + stage.launch.backward().count() : 0;
      }
    }
    // Up to six roundings a stage, and as many in each run here.
    return std::max<int64_t>(0, chain - 3 * (layers_ + std::ssize(runs_)));
  }

  void keep_largest(const ModuleCosts& module, int unit, const SampleWork& sample, int number) {
    int64_t bytes = 0;
    for (std::size_t c = 0; c < runs_.size(); ++c) {
      bytes += module.stages[c].units[at(unit)].activation_bytes;
    }
    if (bytes <= most_bytes_ || (llm_ && options_.chunks)) {
      return;
    }
    most_bytes_ = bytes;
    for (std::size_t c = 0; c < runs_.size(); ++c) {
      unit_bytes_[c] = module.stages[c].units[at(unit)].activation_bytes;
    }
    largest_ = sample;
    number_ = number;
  }

  const ModelSpec& model_;
  int module_;
  FigureOptions options_;
  bool llm_;
  int layers_;
  std::vector<LayerRange> runs_;
  std::vector<char> trainable_;  // [module] anything in it
  LayerFigures figures_;
  // [run]
  std::vector<int64_t> least_forward_;
  std::vector<int64_t> least_backward_;
  std::vector<int64_t> unit_bytes_;  // of the largest unit
  std::vector<OperationTimes> launch_;
  int64_t most_bytes_ = 0;
  SampleWork largest_;  // with the unit of these bytes, at this number
  int number_ = 0;
};

}  // namespace

std::vector<std::vector<LayerFigures>> layer_figures(
    const ModelSpec& model,
    const Profile& profile,
    const Batches& batches,
    const std::vector<std::vector<Degrees>>& degrees,
    const FigureOptions& options) {
  std::vector<std::vector<LayerFigures>> result(degrees.size());
  std::vector<DistinctUnits> distinct;
  for (const std::vector<SampleWork>& batch : batches) {
    distinct.push_back(distinct_units(batch, model.num_modules()));
  }
  for (std::size_t index = 0; index < most_degrees(degrees); ++index) {
    Plan plan = probe_plan(model, degrees, index, 1);
    std::vector<Reader> readers;
    for (int module = 0; module < model.num_modules(); ++module) {
      readers.emplace_back(model, module, options);
    }
    for (const DistinctUnits& batch : distinct) {
      const StepCosts costs = step_costs(model, plan, profile, batch.samples);
      for (std::size_t module = 0; module < degrees.size(); ++module) {
        if (index < degrees[module].size()) {
          readers[module].add(costs, batch.repeats[module]);
        }
      }
    }
    if (!options.further.empty()) {
      const StepCosts costs = step_costs(model, plan, profile, options.further);
      for (Reader& reader : readers) {
        reader.add_further(costs);
      }
    }
    recompute_all(plan);
    for (std::size_t module = 0; module < degrees.size(); ++module) {
      if (index < degrees[module].size()) {
        const Reader& reader = readers[module];
        LayerFigures& figures = result[module].emplace_back(readers[module].finish());
        const SampleWork& largest = reader.largest_sample();
        if (largest.llm_tokens > 0) {
          reader.read_recomputed(step_costs(model, plan, profile, {&largest, 1}), figures);
        }
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
    Plan plan = probe_plan(model, degrees, index, replicas);
    plan.shard_optimizer = state_options.shard_optimizer;
    const StepCosts costs = step_costs(model, plan, profile, SharedVector<SampleWork>{});
    const std::vector<StateBytes> states = lane_states(model, plan, state_options);
    std::size_t lane = 0;  // a stage each
    for (std::size_t module = 0; module < degrees.size(); ++module) {
      const std::vector<LayerRange>& runs = plan.modules[module].stages;
      std::vector<int64_t> reduce;
      std::vector<int64_t> optimizer;
      std::vector<int64_t> state;
      for (std::size_t c = 0; c < runs.size(); ++c) {
        const StageCosts& stage = costs.modules[module].stages[c];
        const bool at_the_end = replicas > 1 && costs.reduce_buckets == 0;
        reduce.push_back(at_the_end ? stage.reduce.count() - 1 : 0);
        // Sharded, the sum of two roundings, so that a stage may have one less than its layers.
        const int rounded_twice = plan.shard_optimizer ? runs[c].end - runs[c].begin : 0;
        optimizer.push_back(stage.optimizer.count() - 1 - rounded_twice);
        state.push_back(states[lane++].total_bytes());
      }
      if (index < degrees[module].size()) {
        result[module].push_back(
            {per_layer(reduce, runs), per_layer(optimizer, runs), per_layer(state, runs)});
      }
    }
  }
  return result;
}

}  // namespace entrain
