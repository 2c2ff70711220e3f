#include "entrain/engine/train/run_checks.h"

#include "entrain/core/base/text.h"
#include "entrain/core/cost/consistency.h"

#include "entrain/engine/train/optimizer.h"

namespace entrain::engine {
namespace {

constexpr int kRanksPerCore = 4;

void add_warmup(const OptimizerConfig& config,
                const std::string& key,
                std::int64_t updates,
                std::vector<std::string>& warnings) {
  if (updates < 1 || config.warmup_steps <= updates) {
    return;
  }
  warnings.push_back(concat(key,
                            " = ",
                            config.warmup_steps,
                            " is more than the run's ",
                            updates,
                            updates == 1 ? " update" : " updates",
                            ": the learning rate reaches ",
                            learning_rate_at(config, updates - 1, updates),
                            " of ",
                            config.learning_rate));
}

}  // namespace

void add_run_warnings(RunSetup& setup) {
  const RunConfig& config = setup.config;
  std::vector<std::string>& warnings = setup.warnings;
  const auto add = [&](const std::vector<std::string>& found) {
    warnings.insert(warnings.end(), found.begin(), found.end());
  };
  if (!config.plan.unused.empty()) {
    warnings.push_back(concat("the plan of plan.file = '",
                              config.plan.file,
                              "' decides what the run file says of ",
                              join(config.plan.unused),
                              ", which has no effect"));
  }
  add(slot_warnings(setup.plan, config.data.global_batch));
  if (!config.plan.profile.empty()) {
    add(profile_warnings(setup.profile, config.plan.profile));
  }
  const std::int64_t updates = config.steps / config.optimizer.update_every;
  add_warmup(config.optimizer, "optimizer.warmup_steps", updates, warnings);
  for (const auto& [part, own] : config.optimizer.modules) {
    if (own.warmup_steps.has_value()) {
      add_warmup(optimizer_of(config.optimizer, part),
                 concat("optimizer.modules.", part, ".warmup_steps"),
                 updates,
                 warnings);
    }
  }
}

std::string crowd_warning(const RunConfig& config, int ranks, int cores) {
  if (config.execution.paced || config.execution.device != "cpu" ||
      ranks <= kRanksPerCore * cores) {
    return "";
  }
  return concat(counted(ranks, "rank"),
                " compute on this host's ",
                counted(cores, "core"),
                ", ",
                ranks / cores,
                " on each: a step takes about that many times as long as predicted (fewer "
                "plan.replicas or stages, or execution.paced = true to study the schedule alone)");
}

}  // namespace entrain::engine
