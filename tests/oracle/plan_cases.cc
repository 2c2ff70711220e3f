#include "tests/oracle/plan_cases.h"

#include <algorithm>
#include <set>

#include "entrain/core/base/at.h"
#include "entrain/core/base/text.h"

#include "tests/oracle/random_cases.h"

namespace entrain::oracle {
namespace {

int below(Rng& rng, int most) {
  return static_cast<int>(rng.below(static_cast<std::uint64_t>(most)));
}

ModelSpec make_model(Rng& rng) {
  ModelSpec model;
  model.name = "tiny";
  const int encoders = below(rng, 3);
  for (int e = 0; e < encoders; ++e) {
    EncoderSpec encoder;
    encoder.name = e == 0 ? "vision" : "audio";
    encoder.modality = e == 0 ? Modality::kVision : Modality::kAudio;
    encoder.num_layers = 1 + below(rng, 3);
    encoder.hidden = 16;
    encoder.num_heads = 4;
    encoder.intermediate = 16;
    model.encoders.push_back(encoder);
  }
  model.llm.num_layers = 1 + below(rng, 3);
  model.llm.hidden = 32;
  model.llm.num_heads = 4;
  model.llm.num_kv_heads = 4;
  model.llm.head_dim = 8;
  model.llm.intermediate = 16;
  model.llm.vocab_size = 32;
  if (encoders > 0 && model.encoders[0].num_layers > 1 && model.llm.num_layers != 2) {
    EncoderSpec& vision = model.encoders[0];
    vision.window_size = vision.patch_size * vision.merge_size;
    vision.full_attention_layers = {0};
  }
  if (below(rng, 3) == 0) {
    freeze(static_cast<FrozenPattern>(below(rng, 5)), model);
  }
  return model;
}

// Every module has entries at (1, 1) and at a few other degrees, the same for all its layer kinds.
Profile make_profile(Rng& rng, const ModelSpec& model) {
  Profile profile;
  profile.device = "test";
  profile.link.latency = std::chrono::nanoseconds{below(rng, 500)};
  profile.link.bytes_per_second = below(rng, 2) == 0 ? 0 : 1e9;
  profile.reduce_bytes_per_second = below(rng, 2) == 0 ? 0 : 1e9;
  profile.optimizer_ns_per_parameter = below(rng, 2) == 0 ? 0 : 0.1;
  for (int module = 0; module < model.num_modules(); ++module) {
    std::set<std::pair<int, int>> degrees{{1, 1}};
    for (int more = below(rng, 3); more > 0; --more) {
      degrees.insert({1 << below(rng, 3), 1 << below(rng, 2)});
    }
    const double rate = 10.0 * (1 + below(rng, 40));
    for (const auto& [tensor, context] : degrees) {
      const double share = 1.0 / (tensor * context) * (1 + 0.1 * below(rng, 5));
      for (const int layer : {0, 1, num_layers(model, module) - 1}) {
        LayerProfile entry;
        entry.module = module_name(model, module);
        entry.kind = layer_kind(model, module, layer);
        entry.tensor_parallel = tensor;
        entry.context_parallel = context;
        const double launch = 100.0 * below(rng, 5);
        const double own = rate * share * (1 + below(rng, 3));
        entry.forward = {share * below(rng, 2), own, launch, 0};
        entry.backward_input = {0, own * (1 + below(rng, 2)), launch, 0};
        entry.backward_weight = {0, own, launch * below(rng, 2), 0};
        entry.activation_bytes_per_token = (1 + below(rng, 1000)) * share;
        entry.output_bytes_per_token = 4;
        profile.layers.push_back(entry);
        if (entry.kind == LayerKind::kEncoderTransformer) {
          // Cheaper than with full attention.
          entry.kind = LayerKind::kWindowedTransformer;
          entry.forward.per_token_ns /= 2;
          entry.backward_weight.per_token_ns /= 4;
          profile.layers.push_back(entry);
        }
      }
    }
  }
  return profile;
}

std::vector<SampleWork> make_batch(Rng& rng, int encoders, int num_samples) {
  std::vector<SampleWork> batch;
  for (int i = 0; i < num_samples; ++i) {
    SampleWork& work = batch.emplace_back();
    work.llm_tokens = 2 + below(rng, 20);
    work.target_tokens = 1 + below(rng, 2);
    for (int e = 0; e < encoders; ++e) {
      std::vector<SegmentWork>& segments = work.segments.emplace_back();
      for (int segment = below(rng, 3); segment > 0; --segment) {
        const std::int64_t features = 1 + below(rng, below(rng, 6) == 0 ? 60 : 12);
        segments.push_back({4 * features, 16 * features * features, features});
        segments.back().window_pairs = 16 * features;
        work.llm_tokens += features;
      }
    }
    work.llm_attention_pairs = work.llm_tokens * work.llm_tokens / 2;
  }
  return batch;
}

// Calls visit() for every way to give each module degrees and a number of stages.
template <class Visit>
void for_each_shape(const PlanCase& plan_case,
                    const std::vector<std::vector<Degrees>>& degrees,
                    PlanShape& config,
                    const Visit& visit) {
  const auto module = static_cast<int>(config.modules.size());
  if (module == plan_case.model.num_modules()) {
    visit();
    return;
  }
  for (const Degrees& choice : degrees[at(module)]) {
    for (int stages = 1; stages <= num_layers(plan_case.model, module); ++stages) {
      config.modules.push_back({choice, stages});
      for_each_shape(plan_case, degrees, config, visit);
      config.modules.pop_back();
    }
  }
}

// Calls visit() for all virtual stages of the modules from `module` on, all with their own lanes.
template <class Visit>
void for_each_virtual(const PlanCase& plan_case,
                      PlanShape& config,
                      int module,
                      const Visit& visit) {
  if (module == plan_case.model.num_modules()) {
    visit();
    return;
  }
  const int wanted = plan_case.request.space.virtual_stages;
  ModuleShape& shape = config.modules[at(module)];
  for (int number = 1; number * shape.stages <= num_layers(plan_case.model, module); ++number) {
    if (wanted == number || (wanted == kAutoVirtualStages && number <= kMostVirtualStages)) {
      shape.virtual_stages = number;
      for_each_virtual(plan_case, config, module + 1, visit);
    }
  }
  shape.virtual_stages = 1;
}

bool equal_shapes(const PlanShape& config, int first, int last) {
  for (int module = first; module <= last; ++module) {
    const ModuleShape& a = config.modules[at(first)];
    const ModuleShape& b = config.modules[at(module)];
    if (a.stages != b.stages || a.degrees.devices() != b.degrees.devices()) {
      return false;
    }
  }
  return true;
}

int devices_of(const PlanShape& config) {
  int devices = 0;
  for (std::size_t module = 0; module < config.modules.size(); ++module) {
    const bool last = module + 1 == config.modules.size();
    const bool counted = module == 0 || config.layout == ModuleLayout::kOwnLanes ||
                         (config.layout == ModuleLayout::kSharedEncoders && last);
    const ModuleShape& shape = config.modules[module];
    devices += counted ? shape.stages * shape.degrees.devices() : 0;
  }
  return devices;
}

}  // namespace

PlanSearchRequest PlanCase::request_of() const {
  PlanSearchRequest result = request;
  result.model = &model;
  result.profile = &profile;
  result.cluster = &cluster;
  return result;
}

PlanCase make_plan_case(Rng& rng, int most_devices) {
  PlanCase result;
  result.model = make_model(rng);
  result.profile = make_profile(rng, result.model);
  const int devices = 1 + below(rng, most_devices);
  result.cluster.name = "tiny";
  result.cluster.num_nodes = devices % 2 == 0 && below(rng, 2) == 0 ? 2 : 1;
  result.cluster.devices_per_node = devices / result.cluster.num_nodes;
  result.cluster.device = "test";
  if (below(rng, 3) == 0) {
    result.cluster.memory_bytes = 60'000 + below(rng, 900'000);
  }
  const int num_samples = devices + below(rng, 13 - std::min(12, devices));
  const auto encoders = static_cast<int>(result.model.encoders.size());
  for (int batches = 1 + below(rng, 3); batches > 0; --batches) {
    result.request.batches.push_back(make_batch(rng, encoders, num_samples));
  }
  const std::vector<std::string> policies = {"sequential", "lpt-2d", "entrain", "encoder-lpt"};
  const std::vector<std::string> schedules = {
      "1f1b", "gpipe", "zb-h1", "entrain", "entrain-fused", "dip"};
  result.request.policy = policies[at(below(rng, 4))];
  result.request.schedule = schedules[at(below(rng, 6))];
  if (encoders == 0 && result.request.schedule == "dip") {
    result.request.schedule = "1f1b";  // no lanes to share
  }
  result.request.score_evaluations = below(rng, 5);
  result.request.limits.chunks = below(rng, 4) == 0;
  result.request.state.shard_optimizer = below(rng, 2) == 0;
  result.request.most_simulations = 0;
  result.request.runners_up = below(rng, 3);
  result.request.space.microbatches =
      below(rng, 3) == 0 ? std::vector<int>{1, 3} : std::vector<int>{2};
  result.request.space.idle_devices = below(rng, 4) == 0;
  return result;
}

PlanCase make_virtual_case(Rng& rng, int most_devices) {
  PlanCase result = make_plan_case(rng, most_devices);
  const std::vector<std::string> schedules = {"interleaved", "1f1b", "zb-h1", "entrain"};
  result.request.schedule = schedules[at(below(rng, 4))];
  result.request.space.virtual_stages = below(rng, 2) == 0 ? 2 : kAutoVirtualStages;
  return result;
}

PlanCase make_full_case(Rng& rng, int most_devices) {
  constexpr int kTimes = 60;
  PlanCase result = make_plan_case(rng, most_devices);
  for (LayerProfile& layer : result.profile.layers) {
    layer.activation_bytes_per_token *= kTimes;
  }
  result.cluster.memory_bytes = 1'000'000 + below(rng, 6'000'000);
  return result;
}

std::vector<PlanShape> all_configs(const PlanCase& plan_case,
                                   const std::vector<std::vector<Degrees>>& degrees) {
  const auto num_samples = static_cast<int>(plan_case.request.batches.front().size());
  const int devices = plan_case.cluster.num_nodes * plan_case.cluster.devices_per_node;
  const int llm = plan_case.model.llm_module();
  const bool dip = plan_case.request.schedule == "dip";
  const bool too = !dip && plan_case.request.space.shared_lanes == SharedLanes::kToo;
  const bool virtual_only = plan_case.request.schedule == "interleaved";
  const bool one_stage = plan_case.request.space.virtual_stages <= 1 && !virtual_only;
  std::vector<int> microbatches = plan_case.request.space.microbatches;
  if (plan_case.request.policy == "entrain") {
    microbatches.resize(1);
  }
  std::vector<PlanShape> result;
  for (int replicas = 1; replicas <= std::min(devices, num_samples); ++replicas) {
    if (num_samples % replicas != 0) {
      continue;
    }
    std::vector<PlanShape> of_replicas;
    int most = 0;
    int most_shared = 0;  // by modules on the same lanes, several of these, beside others
    const auto is_shared = [&](const PlanShape& of) {
      return too && of.layout == ModuleLayout::kColocated && of.modules[0].stages > 1;
    };
    PlanShape config;
    config.replicas = replicas;
    for_each_shape(plan_case, degrees, config, [&] {
      for (const ModuleLayout layout :
           {ModuleLayout::kOwnLanes, ModuleLayout::kSharedEncoders, ModuleLayout::kColocated}) {
        config.layout = layout;
        const bool own = layout == ModuleLayout::kOwnLanes;
        if (own ? dip && llm > 0 : !one_stage) {
          continue;
        }
        if (layout == ModuleLayout::kSharedEncoders &&
            (llm < 2 || dip || !equal_shapes(config, 0, llm - 1))) {
          continue;
        }
        if (layout == ModuleLayout::kColocated &&
            (llm < 1 || !equal_shapes(config, 0, llm) ||
             (!dip && !too && config.modules[0].stages > 1))) {
          continue;
        }
        if (devices_of(config) > devices / replicas || !mesh_fits(config, plan_case.cluster)) {
          continue;
        }
        const auto add = [&] {
          int& most_of = is_shared(config) ? most_shared : most;
          most_of = std::max(most_of, devices_of(config));
          for (const int microbatch : microbatches) {
            config.num_slots = (num_samples + replicas * microbatch - 1) / (replicas * microbatch);
            const bool known =
                std::find(of_replicas.begin(), of_replicas.end(), config) != of_replicas.end();
            if (!known && (config.has_virtual_stages() || !virtual_only)) {
              of_replicas.push_back(config);
            }
          }
        };
        if (own) {
          for_each_virtual(plan_case, config, 0, add);
        } else {
          add();
        }
      }
    });
    for (const PlanShape& other : of_replicas) {
      if (plan_case.request.space.idle_devices ||
          devices_of(other) == (is_shared(other) ? most_shared : most)) {
        result.push_back(other);
      }
    }
  }
  return result;
}

std::string describe(const PlanCase& plan_case) {
  return concat(plan_case.cluster.num_nodes,
                " nodes of ",
                plan_case.cluster.devices_per_node,
                " devices, ",
                plan_case.model.num_modules(),
                " modules, ",
                plan_case.request.batches.size(),
                " batches of ",
                plan_case.request.batches.front().size(),
                " samples, ",
                plan_case.request.policy,
                ", ",
                plan_case.request.schedule,
                plan_case.request.limits.chunks ? ", chunks" : "",
                plan_case.cluster.memory_bytes > 0 ? ", limited memory" : "");
}

}  // namespace entrain::oracle
