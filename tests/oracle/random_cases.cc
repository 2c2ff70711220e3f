#include "tests/oracle/random_cases.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>
#include <vector>

#include "entrain/core/base/errors.h"

namespace entrain::oracle {
namespace {

using std::chrono::nanoseconds;

int between(Rng& rng, int low, int high) {
  return low + static_cast<int>(rng.below(static_cast<std::uint64_t>(high - low + 1)));
}

bool chance(Rng& rng, int one_in) {
  return rng.below(static_cast<std::uint64_t>(one_in)) == 0;
}

nanoseconds random_time(Rng& rng, int high) {
  return nanoseconds{between(rng, 0, high)};
}

ModelSpec random_model(Rng& rng, const RandomCaseOptions& options) {
  ModelSpec model;
  model.name = "random";
  const int encoders = options.encoders.value_or(between(rng, 0, 2));
  ENTRAIN_INVARIANT(encoders <= 2, "at most two encoders");
  for (int e = 0; e < encoders; ++e) {
    EncoderSpec encoder;
    encoder.name = e == 0 ? "vision" : "audio";
    encoder.modality = e == 1 ? Modality::kAudio : Modality::kVision;
    encoder.num_layers = between(rng, 1, 3);
    encoder.hidden = 16;
    encoder.num_heads = 2;
    encoder.intermediate = 16;
    model.encoders.push_back(encoder);
  }
  model.llm.num_layers = between(rng, 3, 5);
  model.llm.hidden = 16;
  model.llm.num_heads = 2;
  model.llm.num_kv_heads = 1;
  model.llm.head_dim = 8;
  model.llm.intermediate = 16;
  model.llm.vocab_size = 32;
  constexpr FrozenPattern kPatterns[] = {FrozenPattern::kNone,
                                         FrozenPattern::kEncoders,
                                         FrozenPattern::kLlm,
                                         FrozenPattern::kOnlyProjector,
                                         FrozenPattern::kEncoderBodies};
  if (options.frozen) {
    freeze(*options.frozen, model);
  } else {
    freeze(kPatterns[rng.below(std::size(kPatterns))], model);
    for (EncoderSpec& encoder : model.encoders) {
      // Encoders of one model may differ in their freezing.
      if (chance(rng, 4)) {
        encoder.frozen = !encoder.frozen;
      }
      if (chance(rng, 4)) {
        encoder.projector_frozen = !encoder.projector_frozen;
      }
    }
  }
  return model;
}

std::vector<LayerRange> random_stages(Rng& rng, int layers, int stages) {
  ENTRAIN_INVARIANT(stages >= 1 && stages <= layers, "a random module has too few layers");
  std::vector<int> cuts;
  for (int layer = 1; layer < layers; ++layer) {
    cuts.push_back(layer);
  }
  rng.shuffle(std::span<int>(cuts));
  cuts.resize(static_cast<std::size_t>(stages - 1));
  cuts.push_back(0);
  cuts.push_back(layers);
  std::sort(cuts.begin(), cuts.end());
  std::vector<LayerRange> result;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    result.push_back({cuts[i], cuts[i + 1]});
  }
  return result;
}

std::vector<std::vector<StageRef>> random_lanes(Rng& rng, const Plan& plan, LaneLayout layout) {
  std::vector<StageRef> stages;
  for (std::size_t m = 0; m < plan.modules.size(); ++m) {
    for (std::size_t s = 0; s < plan.modules[m].stages.size(); ++s) {
      stages.push_back({static_cast<int>(m), static_cast<int>(s)});
    }
  }
  const int num_stages = static_cast<int>(stages.size());
  int num_lanes = num_stages;
  if (layout == LaneLayout::kSingleLane) {
    num_lanes = 1;
  } else if (layout == LaneLayout::kMixed) {
    num_lanes = between(rng, 1, num_stages);
  }
  // The first num_lanes entries give every lane one stage; the rest falls anywhere.
  std::vector<int> lane_of_stage;
  for (int i = 0; i < num_stages; ++i) {
    lane_of_stage.push_back(i < num_lanes ? i : between(rng, 0, num_lanes - 1));
  }
  if (layout == LaneLayout::kMixed) {
    rng.shuffle(std::span<int>(lane_of_stage));
  }
  std::vector<std::vector<StageRef>> lanes(static_cast<std::size_t>(num_lanes));
  for (std::size_t i = 0; i < stages.size(); ++i) {
    lanes[static_cast<std::size_t>(lane_of_stage[i])].push_back(stages[i]);
  }
  return lanes;
}

Plan random_plan(Rng& rng, const ModelSpec& model, const RandomCaseOptions& options) {
  Plan plan;
  plan.replicas = options.replicas.value_or(between(rng, 1, 2));
  plan.num_slots = between(rng, options.min_slots, options.max_slots);
  for (int m = 0; m < model.num_modules(); ++m) {
    const bool llm = m == model.llm_module();
    const int layers = num_layers(model, m);
    const int wanted = llm ? options.llm_stages.value_or(between(rng, 1, 3))
                           : options.encoder_stages.value_or(between(rng, 1, 3));
    ModulePlan module;
    module.name = module_name(model, m);
    module.stages = random_stages(rng, layers, wanted);
    plan.modules.push_back(std::move(module));
  }
  constexpr LaneLayout kLayouts[] = {
      LaneLayout::kLanePerStage, LaneLayout::kSingleLane, LaneLayout::kMixed};
  plan.lanes = random_lanes(
      rng, plan, options.layout ? *options.layout : kLayouts[rng.below(std::size(kLayouts))]);
  plan.limits.max_deferral = chance(rng, 4) ? between(rng, 0, 3) : -1;
  plan.limits.chunks = options.chunks;
  return plan;
}

SampleWork random_sample(Rng& rng, int encoders) {
  SampleWork sample;
  sample.segments.resize(static_cast<std::size_t>(encoders));
  const std::int64_t text = between(rng, 2, 12);
  sample.llm_tokens = text;
  const bool text_only = chance(rng, 4);
  for (auto& segments : sample.segments) {
    const int count = text_only ? 0 : chance(rng, 2) ? between(rng, 2, 5) : between(rng, 0, 2);
    for (int i = 0; i < count; ++i) {
      SegmentWork segment;
      segment.llm_tokens = between(rng, 1, 6);
      segment.tokens = 4 * segment.llm_tokens;
      segment.attention_pairs = segment.tokens * segment.tokens;
      segment.window_pairs = segment.attention_pairs / 4 + segment.tokens;
      sample.llm_tokens += segment.llm_tokens;
      segments.push_back(segment);
    }
  }
  sample.llm_attention_pairs = sample.llm_tokens * sample.llm_tokens / 2;
  sample.target_tokens = between(rng, 1, static_cast<int>(text) - 1);
  return sample;
}

// Tables of one module without times: which units it has.
ModuleCosts module_units(const std::vector<SampleWork>& work, int module, bool llm) {
  ModuleCosts result;
  result.first_unit.push_back(0);
  for (const SampleWork& sample : work) {
    if (llm) {
      result.tokens.push_back(sample.llm_tokens);
    } else {
      for (const SegmentWork& segment : sample.segments[static_cast<std::size_t>(module)]) {
        result.tokens.push_back(segment.tokens);
      }
    }
    result.first_unit.push_back(static_cast<int>(result.tokens.size()));
  }
  return result;
}

bool any_trainable(const ModelSpec& model, int module, LayerRange layers) {
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    if (layer_trainable(model, module, layer)) {
      return true;
    }
  }
  return false;
}

struct Flow {
  bool trainable = false;        // this stage takes a weight gradient
  bool input_trainable = false;  // something trainable lies nearer the input
};

StageCosts random_stage_costs(Rng& rng, Flow flow, std::size_t num_units, bool launch_costs) {
  StageCosts stage;
  const auto times = [&rng, flow](int high) {
    OperationTimes result;
    result.forward = random_time(rng, high);
    result.backward_input = flow.input_trainable ? random_time(rng, high) : nanoseconds{0};
    result.backward_weight = flow.trainable ? random_time(rng, high) : nanoseconds{0};
    if (flow.input_trainable && flow.trainable) {
      result.split = result.backward_weight % 8;  // halves that cost something, and some nothing
    }
    return result;
  };
  // Launches of the size of several units make groups of several parts.
  stage.launch = launch_costs ? times(chance(rng, 2) ? 30 : 400) : OperationTimes{};
  stage.trainable = flow.trainable;
  stage.parameter_bytes = between(rng, 1, 1000);
  stage.trainable_parameters = flow.trainable ? stage.parameter_bytes / 4 + 1 : 0;
  stage.reduce = flow.trainable ? random_time(rng, 50) : nanoseconds{0};
  stage.optimizer = flow.trainable ? random_time(rng, 50) : nanoseconds{0};
  for (std::size_t unit = 0; unit < num_units; ++unit) {
    UnitCost cost;
    cost.time = times(100);
    cost.activation_bytes = between(rng, 0, 100);
    cost.output_bytes = between(rng, 1, 40);
    stage.units.own().push_back(cost);
  }
  return stage;
}

StepCosts random_costs(Rng& rng,
                       const ModelSpec& model,
                       const Plan& plan,
                       std::vector<SampleWork> work,
                       bool launch_costs) {
  StepCosts costs;
  costs.num_samples = static_cast<int>(work.size());
  bool encoder_trainable = false;
  for (int m = 0; m < model.num_modules(); ++m) {
    const bool llm = m == model.llm_module();
    ModuleCosts module = module_units(work, m, llm);
    Flow flow;
    flow.input_trainable = llm && encoder_trainable;
    for (const LayerRange& layers : plan.modules[static_cast<std::size_t>(m)].stages) {
      flow.trainable = any_trainable(model, m, layers);
      module.stages.push_back(random_stage_costs(rng, flow, module.tokens.size(), launch_costs));
      flow.input_trainable = flow.input_trainable || flow.trainable;
    }
    encoder_trainable = encoder_trainable || flow.input_trainable;
    costs.modules.push_back(std::move(module));
  }
  costs.work.own() = std::move(work);
  costs.link.latency = chance(rng, 2) ? nanoseconds{0} : random_time(rng, 20);
  costs.link.bytes_per_second = chance(rng, 2) ? 0 : 1e9 * between(rng, 1, 4);
  return costs;
}

// Weights and key and value bytes of the LLM's stages; some weigh nothing.
void add_chunk_costs(Rng& rng, StepCosts& costs) {
  const auto weights = [&rng] {
    CostWeights result;
    if (!chance(rng, 4)) {
      result.per_pair = between(rng, 0, 3);
      result.per_token = between(rng, 0, 10);
      result.per_target_token = between(rng, 0, 50);
    }
    return result;
  };
  for (StageCosts& stage : costs.modules.back().stages) {
    stage.chunk_weights = {weights(), weights(), weights(), weights(), weights()};
    stage.key_value_bytes_per_token = between(rng, 0, 8);
  }
}

void add_recompute_costs(Rng& rng, StepCosts& costs) {
  for (ModuleCosts& module : costs.modules) {
    for (StageCosts& stage : module.stages) {
      const bool recomputes = chance(rng, 2);
      for (UnitCost& unit : stage.units) {
        if (recomputes && unit.time.backward_input.count() > 0) {
          unit.recompute.largest = between(rng, 0, 60);
          unit.recompute.all = unit.recompute.largest + between(rng, 0, 100);
        }
      }
    }
  }
}

int num_segments(const StepCosts& costs, int module, int sample) {
  const std::vector<int>& first = costs.modules[static_cast<std::size_t>(module)].first_unit;
  return first[static_cast<std::size_t>(sample) + 1] - first[static_cast<std::size_t>(sample)];
}

// `count` different numbers of [low, high], rising.
std::vector<int> distinct(Rng& rng, int low, int high, int count) {
  std::vector<int> numbers;
  for (int number = low; number <= high; ++number) {
    numbers.push_back(number);
  }
  rng.shuffle(std::span<int>(numbers));
  numbers.resize(static_cast<std::size_t>(count));
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// Places one sample cut into chunks, every segment in a slot up to that of its chunk.
void place_cut_sample(
    Rng& rng, const StepCosts& costs, int max_deferral, int sample, ReplicaAssignment& replica) {
  const SampleWork& work = costs.work[static_cast<std::size_t>(sample)];
  const auto tokens = static_cast<int>(work.llm_tokens);
  const int count = between(rng, 2, std::min({4, replica.num_slots, tokens}));
  const std::vector<int> slots = distinct(rng, 0, replica.num_slots - 1, count);
  std::vector<int> cuts = distinct(rng, 1, tokens - 1, count - 1);
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(tokens);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    replica.modules.back()[static_cast<std::size_t>(slots[i])].push_back(
        {.sample = sample, .token_begin = cuts[i], .token_end = cuts[i + 1]});
  }
  for (int m = 0; m < costs.llm_module(); ++m) {
    std::int64_t token = 0;  // at which a segment's features begin at the earliest
    const auto& segments = work.segments[static_cast<std::size_t>(m)];
    for (std::size_t segment = 0; segment < segments.size(); ++segment) {
      std::size_t chunk = 0;
      while (chunk + 1 < slots.size() && cuts[chunk + 1] <= token) {
        ++chunk;
      }
      const int last = slots[chunk];
      const int earliest = max_deferral < 0 ? 0 : std::max(0, last - max_deferral);
      const int slot = chance(rng, 2) ? last : between(rng, earliest, last);
      replica.modules[static_cast<std::size_t>(m)][static_cast<std::size_t>(slot)].push_back(
          {.sample = sample, .segment = static_cast<int>(segment)});
      token += segments[segment].llm_tokens;
    }
  }
}

// Places one sample: the LLM slot first, then every segment in a slot up to it.
void place_sample(Rng& rng,
                  const StepCosts& costs,
                  const PlanLimits& limits,
                  int sample,
                  ReplicaAssignment& replica) {
  const int max_deferral = limits.max_deferral;
  if (limits.chunks && replica.num_slots > 1 &&
      costs.work[static_cast<std::size_t>(sample)].llm_tokens > 1 && chance(rng, 2)) {
    place_cut_sample(rng, costs, max_deferral, sample, replica);
    return;
  }
  const int llm = costs.llm_module();
  const int llm_slot = between(rng, 0, replica.num_slots - 1);
  const int earliest = max_deferral < 0 ? 0 : std::max(0, llm_slot - max_deferral);
  replica.modules[static_cast<std::size_t>(llm)][static_cast<std::size_t>(llm_slot)].push_back(
      {.sample = sample});
  for (int m = 0; m < llm; ++m) {
    const bool spread = chance(rng, 2);
    // Half of the samples that stay together are not deferred at all.
    int slot = chance(rng, 2) ? llm_slot : between(rng, earliest, llm_slot);
    for (int segment = 0; segment < num_segments(costs, m, sample); ++segment) {
      if (spread) {
        slot = between(rng, earliest, llm_slot);
      }
      replica.modules[static_cast<std::size_t>(m)][static_cast<std::size_t>(slot)].push_back(
          {.sample = sample, .segment = segment});
    }
  }
}

const char* name_of_frozen(bool frozen) {
  return frozen ? "frozen" : "trainable";
}

// All but a module's last stage, whose output is another one's size; in half of the cases but for
// their launches.
void make_stages_alike(StepCosts& costs) {
  for (ModuleCosts& module : costs.modules) {
    for (std::size_t s = 1; s + 1 < module.stages.size(); ++s) {
      const StageCosts& before = module.stages[s - 1];
      StageCosts& stage = module.stages[s];
      if (stage.trainable == before.trainable) {
        stage.units = before.units;
        stage.launch = costs.num_samples % 2 == 0 ? before.launch : stage.launch;
      }
    }
  }
}

}  // namespace

void freeze(FrozenPattern pattern, ModelSpec& model) {
  if (pattern == FrozenPattern::kGiven) {
    return;
  }
  const bool bodies = pattern == FrozenPattern::kEncoders ||
                      pattern == FrozenPattern::kOnlyProjector ||
                      pattern == FrozenPattern::kEncoderBodies;
  for (EncoderSpec& encoder : model.encoders) {
    encoder.frozen = bodies;
    encoder.projector_frozen = pattern == FrozenPattern::kEncoders;
  }
  model.llm.frozen = pattern == FrozenPattern::kLlm || pattern == FrozenPattern::kOnlyProjector;
}

RandomCase make_random_case(Rng& rng, const RandomCaseOptions& options) {
  RandomCase result;
  result.model = random_model(rng, options);
  result.plan = random_plan(rng, result.model, options);
  const int replicas = result.plan.replicas;
  const int num_samples = between(rng, replicas, std::max(replicas, options.max_samples));
  std::vector<SampleWork> work;
  for (int i = 0; i < num_samples; ++i) {
    work.push_back(random_sample(rng, result.model.llm_module()));
  }
  const bool launch_costs = options.launch_costs ? *options.launch_costs : chance(rng, 2);
  result.costs = random_costs(rng, result.model, result.plan, std::move(work), launch_costs);
  if (options.chunks) {
    add_chunk_costs(rng, result.costs);
  }
  if (options.recompute) {
    add_recompute_costs(rng, result.costs);
  }
  if (options.alike) {
    make_stages_alike(result.costs);
  }
  result.assignment =
      random_assignment(rng, result.costs, result.plan, options.min_slots, options.max_slots);
  return result;
}

StepAssignment random_assignment(
    Rng& rng, const StepCosts& costs, const Plan& plan, int min_slots, int max_slots) {
  ENTRAIN_INVARIANT(costs.num_samples >= plan.replicas, "every replica needs a sample");
  ENTRAIN_INVARIANT(1 <= min_slots && min_slots <= max_slots, "bad range of slots");
  StepAssignment result;
  result.policy = "random-case";
  result.replicas.resize(static_cast<std::size_t>(plan.replicas));
  for (ReplicaAssignment& replica : result.replicas) {
    replica.num_slots = between(rng, min_slots, max_slots);
    replica.modules.assign(costs.modules.size(),
                           ModuleSlots(static_cast<std::size_t>(replica.num_slots)));
  }
  std::vector<int> order;
  for (int sample = 0; sample < costs.num_samples; ++sample) {
    order.push_back(sample);
  }
  rng.shuffle(std::span<int>(order));
  for (int i = 0; i < costs.num_samples; ++i) {
    // One sample each first, so that no replica is idle.
    const int replica = i < plan.replicas ? i : between(rng, 0, plan.replicas - 1);
    place_sample(rng,
                 costs,
                 plan.limits,
                 order[static_cast<std::size_t>(i)],
                 result.replicas[static_cast<std::size_t>(replica)]);
  }
  for (ReplicaAssignment& replica : result.replicas) {
    for (ModuleSlots& slots : replica.modules) {
      for (Slot& slot : slots) {
        rng.shuffle(std::span<WorkItem>(slot));
      }
    }
  }
  return result;
}

std::string describe(const RandomCase& random_case) {
  std::ostringstream out;
  const ModelSpec& model = random_case.model;
  for (int m = 0; m < model.num_modules(); ++m) {
    out << module_name(model, m) << ":";
    for (const StageCosts& stage : random_case.costs.modules[static_cast<std::size_t>(m)].stages) {
      out << " " << name_of_frozen(!stage.trainable);
    }
    out << "\n";
  }
  for (const auto& lane : random_case.plan.lanes) {
    out << "lane:";
    for (const StageRef& stage : lane) {
      out << " " << module_name(model, stage.module) << stage.stage;
    }
    out << "\n";
  }
  for (std::size_t r = 0; r < random_case.assignment.replicas.size(); ++r) {
    const ReplicaAssignment& replica = random_case.assignment.replicas[r];
    for (std::size_t m = 0; m < replica.modules.size(); ++m) {
      out << "replica " << r << " " << module_name(model, static_cast<int>(m)) << ":";
      for (const Slot& slot : replica.modules[m]) {
        out << " [";
        for (const WorkItem& item : slot) {
          out << " " << item.sample;
          if (item.segment >= 0) {
            out << "." << item.segment;
          }
          if (item.is_chunk()) {
            out << "[" << item.token_begin << "," << item.token_end << ")";
          }
        }
        out << " ]";
      }
      out << "\n";
    }
  }
  return out.str();
}

}  // namespace entrain::oracle
