// The changes that memory_fit.h tries if a run does not fit.
#include <algorithm>
#include <functional>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/train/memory_fit.h"
#include "entrain/engine/train/recompute_policy.h"

namespace entrain::engine {
namespace {

constexpr int kEvaluations = 20;  // of the `entrain` policy, per change
constexpr std::size_t kShownWays = 3;
constexpr std::int64_t kSmallReadAheadMib = 16;

struct Change {
  std::string text;
  std::string price;
  std::function<void(RunSetup&)> apply;
  bool of_training = false;  // final weights differ by more than rounding
};

// Where a plan's number is set: in the run file, or in the plan file it names.
std::string plan_key(const RunSetup& setup, const char* key) {
  const std::string& file = setup.config.plan.file;
  return file.empty() ? concat("plan.", key) : concat(key, " of '", file, "'");
}

void recompute_all(RunSetup& setup) {
  setup.config.execution.recompute = {RecomputeKind::kFull, 0};
  apply_recompute(setup);
}

// Activations are half of those of a profile measured in float32.
void compute_in_bf16(RunSetup& setup) {
  setup.config.execution.precision = Precision::kBf16;
  if (setup.profile.dtype == "float32") {
    for (LayerProfile& layer : setup.profile.layers) {
      layer.activation_bytes_per_token /= 2;
      layer.output_bytes_per_token /= 2;
    }
    setup.profile.dtype = "bfloat16";
  }
}

// Changes that do not affect the trained weights.
void add_layouts(const RunSetup& setup,
                 const HostRanks& ranks,
                 const MemoryFit& now,
                 std::vector<Change>& changes) {
  const Plan& plan = setup.plan;
  if (setup.config.data.read_ahead_mib > kSmallReadAheadMib) {
    changes.push_back({concat("data.read_ahead_mib = ", kSmallReadAheadMib),
                       "decoding may fall behind",
                       [](RunSetup& run) { run.config.data.read_ahead_mib = kSmallReadAheadMib; }});
  }
  if (plan.replicas > 1 && !plan.shard_optimizer) {
    changes.push_back(
        {"plan.shard_optimizer = true", "more messages between replicas", [](RunSetup& run) {
           run.plan.shard_optimizer = true;
           run.config.plan.shard_optimizer = true;
         }});
  }
  if (plan.schedule != "1f1b") {
    changes.push_back({"plan.schedule = \"1f1b\"",
                       concat("instead of ", plan.schedule),
                       [](RunSetup& run) { run.plan.schedule = "1f1b"; }});
  }
  const int samples = setup.config.data.global_batch / plan.replicas;
  const int slots = std::min(samples, 2 * plan.num_slots);
  if (slots > plan.num_slots) {
    changes.push_back({concat(plan_key(setup, "num_slots"), " = ", slots),
                       "smaller slots, a little slower",
                       [slots](RunSetup& run) { run.plan.num_slots = slots; }});
  }
  std::int64_t most = 0;
  for (const LaneMemory& lane : now.lanes) {
    most = std::max(most, lane.activations);
  }
  const std::int64_t limit_mib = most / 2 >> 20U;
  if (limit_mib > 0) {
    const bool in_file = !setup.config.plan.file.empty();
    changes.push_back(
        {concat(plan_key(setup, in_file ? "limits.bytes_per_lane" : "bytes_per_lane_mib"),
                " = ",
                in_file ? limit_mib << 20U : limit_mib),
         "fewer slots in flight on a lane",
         [limit_mib](RunSetup& run) {
           run.plan.limits.bytes_per_lane = limit_mib << 20U;
           run.plan.limits.lane_bytes.clear();
         }});
  }
  changes.push_back({"execution.recompute = \"full\"", "every forward runs twice", recompute_all});
  // Ranks of a host share its memory, so fewer copies of the model need less.
  if (plan.replicas > 1 && ranks.count == RankPlaces(plan).num_ranks()) {
    const int half = plan.replicas / 2;
    changes.push_back({concat(plan_key(setup, "replicas"), " = ", half),
                       "fewer ranks compute",
                       [half](RunSetup& run) { run.plan.replicas = half; }});
  }
}

// More lanes for the largest module, if devices are idle.
void add_stages(const RunSetup& setup,
                const HostRanks& ranks,
                const MemorySupply& supply,
                std::vector<Change>& changes) {
  const auto devices = std::ssize(supply.devices);
  const int llm = setup.model.llm_module();
  const auto stages =
      static_cast<int>(setup.plan.modules[static_cast<std::size_t>(llm)].stages.size());
  const std::int64_t more = (devices - ranks.count) / std::max(1, setup.plan.replicas);
  const int wanted =
      static_cast<int>(std::min<std::int64_t>(stages + more, num_layers(setup.model, llm)));
  if (!setup.config.plan.file.empty() || wanted <= stages || setup.config.plan.single_lane) {
    return;
  }
  changes.push_back({concat("plan.stages.llm = ", wanted),
                     concat("on ", devices, " devices"),
                     [wanted, llm](RunSetup& run) {
                       std::vector<int> counts;
                       for (const ModulePlan& module : run.plan.modules) {
                         counts.push_back(static_cast<int>(module.stages.size()));
                       }
                       counts[static_cast<std::size_t>(llm)] = wanted;
                       const Plan more_lanes =
                           even_plan(run.model, counts, run.plan.replicas, run.plan.num_slots);
                       for (std::size_t m = 0; m < run.plan.modules.size(); ++m) {
                         run.plan.modules[m].stages = more_lanes.modules[m].stages;
                         run.plan.modules[m].recompute.clear();
                       }
                       run.plan.lanes = more_lanes.lanes;
                       run.plan.limits.lane_bytes.clear();
                     }});
}

// Changes that affect the trained weights.
void add_trainings(const RunSetup& setup, std::vector<Change>& changes) {
  if (setup.config.execution.precision == Precision::kFp32) {
    changes.push_back({"execution.precision = \"bf16\"",
                       "activations and messages are rounded",
                       compute_in_bf16,
                       true});
  }
  const int half = setup.config.data.global_batch / 2;
  if (half >= setup.plan.replicas) {
    const int every = 2 * setup.config.optimizer.update_every;
    changes.push_back({concat("data.global_batch = ", half, ", optimizer.update_every = ", every),
                       "the same samples per update, in twice the steps",
                       [half, every](RunSetup& run) {
                         run.config.data.global_batch = half;
                         run.config.optimizer.update_every = every;
                       },
                       true});
  }
  std::vector<std::string> names;
  for (int module = 0; module < setup.model.num_modules(); ++module) {
    if (layer_trainable(setup.model, module, 1)) {
      names.push_back(module_name(setup.model, module));
    }
  }
  for (const std::string& name : names.size() > 1 ? names : std::vector<std::string>()) {
    std::vector<std::string> freeze = setup.config.freeze;
    freeze.push_back(name);
    std::vector<std::string> quoted;
    for (const std::string& frozen : freeze) {
      quoted.push_back('"' + frozen + '"');
    }
    changes.push_back({concat("freeze = [", join(quoted), "]"),
                       concat(name, " is then not trained"),
                       [freeze](RunSetup& run) {
                         run.config.freeze = freeze;
                         run.model = run_model(run.config);
                       },
                       true});
  }
}

// If all ranks are on this host, they still are after their number changes.
HostRanks ranks_of(const RunSetup& setup, const HostRanks& ranks, const Plan& before) {
  return ranks.count == RankPlaces(before).num_ranks() ? all_ranks(setup.plan) : ranks;
}

}  // namespace

std::vector<WayToFit> ways_to_fit(const RunSetup& setup,
                                  const HostRanks& ranks,
                                  const MemorySupply& supply,
                                  const MemoryFit& now) {
  std::vector<Change> changes;
  add_layouts(setup, ranks, now, changes);
  add_stages(setup, ranks, supply, changes);
  add_trainings(setup, changes);
  RunSetup trial = setup;  // one copy of the samples for all of them
  const auto judge = [&](const std::vector<const Change*>& together, WayToFit& way) {
    trial.config = setup.config;
    trial.plan = setup.plan;
    trial.profile = setup.profile;
    trial.model = setup.model;
    trial.plan.limits.evaluations = std::min(trial.plan.limits.evaluations, kEvaluations);
    try {
      for (const Change* change : together) {
        change->apply(trial);
      }
      const MemoryFit fit =
          memory_fit(trial, prepare_step(trial, 0), ranks_of(trial, ranks, setup.plan), supply);
      way.needed = fit.needed();
      way.saved = now.needed() - fit.needed();
      way.fits = fit.fits();
      return fit.missing() < now.missing();
    } catch (const InvalidInput&) {
      return false;  // a change that this plan or profile does not allow
    } catch (const NothingFits&) {
      return false;
    }
  };
  std::vector<WayToFit> ways;
  std::vector<const Change*> helpful;  // of those that do not affect the training
  for (const Change& change : changes) {
    WayToFit way{change.text, change.price};
    if (judge({&change}, way)) {
      ways.push_back(way);
      if (!change.of_training) {
        helpful.push_back(&change);
      }
    }
  }
  const bool some_fit = std::ranges::any_of(ways, &WayToFit::fits);
  if (some_fit) {
    std::erase_if(ways, [](const WayToFit& way) { return !way.fits; });
  } else {
    std::ranges::stable_sort(ways, std::ranges::greater(), &WayToFit::saved);
  }
  ways.resize(std::min(ways.size(), kShownWays));
  WayToFit all;
  if (!some_fit && helpful.size() > 1 && judge(helpful, all) && all.fits) {
    std::vector<std::string> texts;
    for (const Change* change : helpful) {
      texts.push_back(change->text);
    }
    all.change = join(texts, ",\n  ");
    ways.push_back(all);
  }
  return ways;
}

}  // namespace entrain::engine
