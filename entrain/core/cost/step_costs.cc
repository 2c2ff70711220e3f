#include "entrain/core/cost/step_costs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/cost/dtype.h"
#include "entrain/core/cost/sharding.h"
#include "entrain/core/cost/trained_profile.h"
#include "entrain/core/spec/training.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;

// Work of a unit in the layers of its module.
struct Features {
  double pairs = 0;
  double window_pairs = 0;  // of windowed layers, in their place
  double tokens = 0;
  double target_tokens = 0;  // the output head's tokens; 0 in encoders
  bool operator==(const Features&) const = default;
};

// Neighbouring units of a sample that are equal: frames of a video, windows of a recording.
struct Run {
  Features features;
  std::int64_t tokens = 0;
  std::int64_t to_llm = 0;  // tokens of an encoder's result
  int count = 0;            // > 0
};

// Costs per feature, summed over the layers of a stage.
struct Rates {
  CostWeights weights;
  double per_window_pair = 0;
  double per_launch = 0;

  void add(const CostCurve& curve, LayerKind kind) {
    (kind == LayerKind::kWindowedTransformer ? per_window_pair : weights.per_pair) +=
        curve.per_pair_ns;
    (kind == LayerKind::kOutputHead ? weights.per_target_token : weights.per_token) +=
        curve.per_token_ns;
    per_launch += curve.per_launch_ns;
  }
  bool operator==(const Rates&) const = default;
  [[nodiscard]] double of(const Features& unit) const {
    return weights.per_pair * unit.pairs + per_window_pair * unit.window_pairs +
           weights.per_token * unit.tokens + weights.per_target_token * unit.target_tokens;
  }
};

struct StageRates {
  Rates forward;
  Rates backward_input;
  Rates backward_weight;
  Rates split;
  CostWeights activation;         // bytes
  CostWeights recompute;          // likewise, restored in backward
  CostWeights recompute_largest;  // of one decoder, and of the output head

  bool operator==(const StageRates&) const = default;
  void keep(double bytes, LayerKind kind) { of_kind(activation, kind) += bytes; }
  void bring_back(double bytes, LayerKind kind) {
    of_kind(recompute, kind) += bytes;
    double& largest = of_kind(recompute_largest, kind);
    largest = std::max(largest, bytes);
  }
  [[nodiscard]] ChunkWeights chunk_weights() const {
    return {forward.weights,
            backward_input.weights,
            backward_weight.weights,
            split.weights,
            activation,
            recompute,
            recompute_largest};
  }

 private:
  static double& of_kind(CostWeights& weights, LayerKind kind) {
    return kind == LayerKind::kOutputHead ? weights.per_target_token : weights.per_token;
  }
};

bool measured(const CostCurve& curve) {
  return curve.per_pair_ns > 0 || curve.per_token_ns > 0 || curve.per_launch_ns > 0;
}

[[noreturn]] void refuse(double value, const char* what) {
  throw InvalidInput(fmt::format(
      "one unit of the batch costs {} {}; at most 2^62 is allowed: check sizes and profile",
      value,
      what));
}

// As nearbyint() does, without a call where it is small: below 2^52 a double has room for halves,
// and the sum rounds by the current mode.
inline std::int64_t rounded(double value, std::int64_t most, const char* what) {
  constexpr double kSmall = 0x1p51;
  constexpr double kShift = 0x1.8p52;
  if (value < kSmall) {
    return static_cast<std::int64_t>((value + kShift) - kShift);
  }
  if (!(value <= static_cast<double>(most))) {
    refuse(value, what);
  }
  return static_cast<std::int64_t>(std::nearbyint(value));
}

nanoseconds to_time(double value) {
  return nanoseconds{rounded(value, kMostNanoseconds, "ns")};
}

// Adds up what a batch costs and refuses what 64 bits might not hold.
class Total {
 public:
  explicit Total(std::int64_t most, const char* unit) : most_(most), unit_(unit) {}

  void add(std::int64_t value, std::int64_t times = 1) {
    std::int64_t sum = 0;
    if (__builtin_mul_overflow(value, times, &sum) || __builtin_add_overflow(sum_, sum, &sum) ||
        sum > most_) {
      refuse();
    }
    sum_ = sum;
  }
  void add(const OperationTimes& of, std::int64_t times) {
    add(of.forward.count(), times);
    add(of.backward_input.count(), times);
    add(of.weight_half().count(), times);
  }

 private:
  [[noreturn]] void refuse() const {
    throw InvalidInput(
        fmt::format("the batch needs more than 2^62 {} in total: check sizes and profile", unit_));
  }

  std::int64_t most_;
  const char* unit_;
  std::int64_t sum_ = 0;
};

std::int64_t bytes_of_dtype(const Profile& profile) {
  if (const auto bytes = known_dtype_bytes(profile.dtype)) {
    return *bytes;
  }
  throw InvalidInput(fmt::format(
      "the profile of '{}' has dtype '{}'; allowed: float32, bfloat16, float16, float64",
      profile.device,
      profile.dtype));
}

std::int64_t devices_of(const ModulePlan& module) {
  return std::int64_t{module.tensor_parallel} * module.context_parallel;
}

std::int64_t divided_up(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Whether weight gradients of the layer need a gradient of something within it: all but the
// embeddings of one operation hold several, the first of which has weights.
bool flows_within(LayerKind kind) {
  return kind != LayerKind::kPatchEmbedding && kind != LayerKind::kTokenEmbedding;
}

bool any_encoder_trainable(const ModelSpec& model) {
  for (int module = 0; module < model.llm_module(); ++module) {
    if (any_trainable(model, module)) {
      return true;
    }
  }
  return false;
}

class StepCostBuilder {
 public:
  StepCostBuilder(const ModelSpec& model,
                  const Plan& plan,
                  const Profile& profile,
                  const SharedVector<SampleWork>& work)
      : model_(model),
        plan_(plan),
        profile_(profile),
        work_(work),
        dtype_bytes_(bytes_of_dtype(profile)) {}

  StepCosts build() {
    StepCosts result;
    result.reduce_buckets = plan_.shard_optimizer && plan_.replicas > 1 ? kReduceBuckets : 0;
    result.num_samples = static_cast<int>(work_.size());
    result.work = work_;
    result.link = profile_.link;
    for (int module = 0; module < model_.num_modules(); ++module) {
      result.modules.push_back(module_costs(module));
    }
    return result;
  }

 private:
  ModuleCosts module_costs(int module) {
    ModuleCosts result;
    const std::vector<Run> runs = list_units(module, result);
    const bool llm = module == model_.llm_module();
    const ModulePlan& plan = plan_.modules[at(module)];
    std::vector<StageRates> kinds;  // [stage]: stages of like layers cost the same
    // Whether something trainable is nearer the input than the current layer.
    bool nearer_input = llm && any_encoder_trainable(model_);
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      StageCosts stage;
      const LayerRange layers = plan.stages[s];
      const int recomputed_end = layers.begin + plan.recomputed(static_cast<int>(s));
      const StageRates rates = stage_rates(module, layers, recomputed_end, nearer_input, stage);
      if (llm) {
        stage.chunk_weights = rates.chunk_weights();
        stage.key_value_bytes_per_token =
            divided_up(key_value_bytes(plan) * num_decoders(layers), plan.context_parallel);
      }
      const bool last = s + 1 == plan.stages.size();
      stage.output_width = output_width(model_, module, layers.end - 1);
      const std::int64_t width = stage.output_width * dtype_bytes_;
      // The smaller of two lanes has the fewer links, and the larger share of the message.
      const std::int64_t shares =
          last ? std::min(devices_of(plan), devices_of(plan_.modules.back())) : devices_of(plan);
      const auto output_bytes = [&](const Run& run) {
        return llm && last ? 0 : divided_up((last ? run.to_llm : run.tokens) * width, shares);
      };
      const auto equal = std::find(kinds.begin(), kinds.end(), rates);
      const auto alike = static_cast<std::size_t>(equal - kinds.begin());
      if (!last && equal != kinds.end() &&
          result.stages[alike].output_width == stage.output_width) {
        stage.units = result.stages[alike].units;
      } else {
        std::vector<UnitCost>& units = stage.units.own();
        units.reserve(result.tokens.size());
        for (const Run& run : runs) {
          UnitCost& first = units.emplace_back();  // built in place: most runs are of one unit
          set_cost(rates, run.features, first);
          first.output_bytes = output_bytes(run);
          if (run.count > 1) {
            units.insert(units.end(), at(run.count - 1), UnitCost(first));
          }
        }
      }
      count(stage, runs);
      kinds.push_back(rates);
      result.stages.push_back(std::move(stage));
    }
    return result;
  }

  // Adds a stage's units to what the batch costs in all.
  void count(const StageCosts& stage, const std::vector<Run>& runs) {
    std::size_t first = 0;
    for (const Run& run : runs) {
      const UnitCost& unit = stage.units[first];
      total_time_.add(unit.time, run.count);
      // As if every unit had its own launch: no grouping can cost more.
      total_time_.add(stage.launch, run.count);
      total_bytes_.add(unit.activation_bytes, run.count);
      total_bytes_.add(unit.recompute.all, run.count);
      total_bytes_.add(unit.output_bytes, run.count);
      first += at(run.count);
    }
  }

  // Fills first_unit, tokens and runs.
  std::vector<Run> list_units(int module, ModuleCosts& result) const {
    std::vector<Run> runs;
    const auto append = [&](const Features& features, std::int64_t tokens, std::int64_t to_llm) {
      const bool is_first = std::cmp_equal(result.tokens.size(), result.first_unit.back());
      result.tokens.push_back(tokens);
      if (!is_first && runs.back().features == features && runs.back().to_llm == to_llm) {
        ++runs.back().count;
      } else {
        runs.push_back({features, tokens, to_llm, 1});
      }
    };
    result.first_unit.reserve(work_.size() + 1);
    result.first_unit.push_back(0);
    for (const SampleWork& sample : work_) {
      if (module == model_.llm_module()) {
        append({static_cast<double>(sample.llm_attention_pairs),
                static_cast<double>(sample.llm_window_pairs),
                static_cast<double>(sample.llm_tokens),
                static_cast<double>(sample.target_tokens)},
               sample.llm_tokens,
               0);
      } else {
        for (const SegmentWork& segment : sample.segments[at(module)]) {
          append({static_cast<double>(segment.attention_pairs),
                  static_cast<double>(segment.window_pairs),
                  static_cast<double>(segment.tokens),
                  0.0},
                 segment.tokens,
                 model_.llm.cross_attention ? segment.tokens : segment.llm_tokens);
        }
      }
      result.first_unit.push_back(static_cast<int>(result.tokens.size()));
    }
    for (const Run& run : runs) {
      result.runs.push_back(run.count);
    }
    return runs;
  }

  // Of one decoder and a token that the device holds: every device of a lane holds whole heads of
  // its share of the tokens.
  [[nodiscard]] std::int64_t key_value_bytes(const ModulePlan& plan) const {
    const LlmSpec& llm = model_.llm;
    return 2 * divided_up(llm.num_kv_heads, plan.tensor_parallel) * llm.head_dim * dtype_bytes_;
  }

  [[nodiscard]] std::int64_t num_decoders(LayerRange layers) const {
    std::int64_t decoders = 0;
    for (int layer = layers.begin; layer < layers.end; ++layer) {
      decoders += has_attention(layer_kind(model_, model_.llm_module(), layer)) ? 1 : 0;
    }
    return decoders;
  }

  // Bytes per token that a recomputed layer keeps.
  [[nodiscard]] double kept_bytes(int module, int index, const LayerProfile& layer) const {
    const ModulePlan& plan = plan_.modules[at(module)];
    double bytes = device_work(model_,
                               module,
                               index,
                               static_cast<double>(dtype_bytes_),
                               plan.tensor_parallel,
                               plan.context_parallel)
                       .input_bytes;
    if (plan_.limits.chunks && module == model_.llm_module() && has_attention(layer.kind)) {
      bytes += static_cast<double>(key_value_bytes(plan)) / plan.context_parallel;
    }
    return std::min(bytes, layer.activation_bytes_per_token);
  }

  // What a layer that takes part in backward keeps for it; recomputed, it pays its forward again.
  void add_kept(
      int module, int index, bool recomputed, const LayerProfile& layer, StageRates& rates) const {
    const double all = layer.activation_bytes_per_token;
    if (!recomputed) {
      rates.keep(all, layer.kind);
      return;
    }
    const double kept = kept_bytes(module, index, layer);
    rates.keep(kept, layer.kind);
    rates.bring_back(all - kept, layer.kind);
    rates.backward_input.add(measured(layer.recompute) ? layer.recompute : layer.forward,
                             layer.kind);
  }

  // Sums over the stage's layers, those before `recomputed_end` recomputed, and fills what does not
  // depend on units.
  StageRates stage_rates(
      int module, LayerRange layers, int recomputed_end, bool& nearer_input, StageCosts& stage) {
    const ModulePlan& plan = plan_.modules[at(module)];
    StageRates rates;
    std::int64_t parameters = 0;
    for (int index = layers.begin; index < layers.end; ++index) {
      const LayerKind kind = layer_kind(model_, module, index);
      const LayerCounts counts = count_parameters(model_, module, index);
      const LayerProfile layer = trained_profile(
          model_,
          module,
          counts,
          find_layer(profile_, plan.name, kind, plan.tensor_parallel, plan.context_parallel),
          dtype_bytes_);
      const bool trainable = counts.trained > 0;
      rates.forward.add(layer.forward, kind);
      const bool input_gradient = nearer_input || (trainable && flows_within(kind));
      if (input_gradient) {
        rates.backward_input.add(layer.backward_input, kind);
      }
      if (input_gradient && trainable) {
        rates.split.add(layer.split, kind);
      }
      if (trainable) {
        rates.backward_weight.add(layer.backward_weight, kind);
        stage.trainable_parameters += counts.trained_per_device(plan.tensor_parallel);
      }
      if (nearer_input || trainable) {
        const bool recomputed = index < recomputed_end && flows_within(kind);
        add_kept(module, index, recomputed, layer, rates);
      }
      parameters += counts.per_device(plan.tensor_parallel);
      stage.trainable = stage.trainable || trainable;
      nearer_input = nearer_input || trainable;
    }
    stage.launch.forward = to_time(rates.forward.per_launch);
    stage.launch.backward_input = to_time(rates.backward_input.per_launch);
    stage.launch.backward_weight = to_time(rates.backward_weight.per_launch);
    stage.launch.split = to_time(rates.split.per_launch);
    stage.parameter_bytes = parameters * dtype_bytes_;
    const auto trained = static_cast<double>(stage.trainable_parameters);
    const int sharers = plan_.replicas * plan.context_parallel;
    if (sharers > 1 && profile_.reduce_bytes_per_second > 0) {
      stage.reduce = to_time(trained * static_cast<double>(dtype_bytes_) * 1e9 /
                             profile_.reduce_bytes_per_second);
    }
    const double update = trained * profile_.optimizer_ns_per_parameter;
    if (plan_.shard_optimizer) {
      const std::chrono::nanoseconds gather = stage.reduce / 2;
      stage.reduce -= gather;
      stage.optimizer = to_time(update / sharers) + gather;
    } else {
      stage.optimizer = to_time(update);
    }
    total_time_.add(stage.reduce.count());
    total_time_.add(stage.optimizer.count());
    return rates;
  }

  // All but the output's bytes.
  static void set_cost(const StageRates& rates, const Features& unit, UnitCost& result) {
    result.time.forward = to_time(rates.forward.of(unit));
    result.time.backward_input = to_time(rates.backward_input.of(unit));
    result.time.backward_weight = to_time(rates.backward_weight.of(unit));
    result.time.split = to_time(rates.split.of(unit));
    result.activation_bytes = bytes_of(rates.activation, unit);
    result.recompute.all = bytes_of(rates.recompute, unit);
    const CostWeights& largest = rates.recompute_largest;
    result.recompute.largest =
        bytes_of(largest.per_token * unit.tokens >= largest.per_target_token * unit.target_tokens
                     ? CostWeights{0, largest.per_token, 0}
                     : CostWeights{0, 0, largest.per_target_token},
                 unit);
  }

  static std::int64_t bytes_of(const CostWeights& weights, const Features& unit) {
    return rounded(weights.per_token * unit.tokens + weights.per_target_token * unit.target_tokens,
                   kMostBytes,
                   "bytes");
  }

  const ModelSpec& model_;
  const Plan& plan_;
  const Profile& profile_;
  const SharedVector<SampleWork>& work_;
  std::int64_t dtype_bytes_;
  Total total_time_{kMostNanoseconds, "ns"};
  Total total_bytes_{kMostBytes, "bytes"};
};

}  // namespace

StepCosts step_costs(const ModelSpec& model,
                     const Plan& plan,
                     const Profile& profile,
                     std::span<const SampleWork> work) {
  SharedVector<SampleWork> shared;
  shared.own().assign(work.begin(), work.end());
  return step_costs(model, plan, profile, shared);
}

StepCosts step_costs(const ModelSpec& model,
                     const Plan& plan,
                     const Profile& profile,
                     const SharedVector<SampleWork>& work) {
  ENTRAIN_INVARIANT(
      plan.modules.size() == at(model.num_modules()),
      fmt::format(
          "a plan of {} modules for a model of {}", plan.modules.size(), model.num_modules()));
  for (const SampleWork& sample : work) {
    ENTRAIN_INVARIANT(sample.segments.size() == model.encoders.size(),
                      fmt::format("work of {} encoders for a model of {}",
                                  sample.segments.size(),
                                  model.encoders.size()));
  }
  return StepCostBuilder(model, plan, profile, work).build();
}

std::vector<SampleWork> batch_work(const ModelSpec& model, std::span<const SampleSizes> batch) {
  std::vector<SampleWork> result;
  result.reserve(batch.size());
  for (const SampleSizes& sizes : batch) {
    result.push_back(sample_work(model, sizes));
  }
  return result;
}

}  // namespace entrain
