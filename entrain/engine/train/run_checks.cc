#include "entrain/engine/train/run_checks.h"

#include <optional>
#include <string_view>

#include "entrain/core/base/text.h"
#include "entrain/core/cost/consistency.h"
#include "entrain/core/spec/cost_origin.h"

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

// The origins of the run's costs, and of those of its plan file.
std::vector<CostOrigin> origins_of(const RunConfig& config, const Profile& profile) {
  const std::string& file = config.plan.profile;
  std::vector<CostOrigin> origins = {{file.empty() ? "plan.profile (none given)" : file,
                                      profile.device,
                                      file.empty() ? "" : profile_machine(file),
                                      profile.dtype,
                                      profile.source == "measured"}};
  if (!config.plan.file.empty()) {
    if (std::optional<CostOrigin> made_by = plan_origin(config.plan.file)) {
      made_by->profile = concat(config.plan.file, ", made by ", made_by->profile);
      origins.push_back(*made_by);
    }
  }
  return origins;
}

// One line on costs not measured on this machine; empty if there are none.
std::string origin_warning(const RunConfig& config, const Profile& profile) {
  const std::string& device = config.execution.device;
  const std::string machine = machine_name(device);
  std::vector<std::string> parts;
  for (const CostOrigin& origin : origins_of(config, profile)) {
    const std::string mismatch = origin_mismatch(origin, device, machine);
    if (!mismatch.empty()) {
      parts.push_back(concat(origin.profile, ": ", mismatch));
    }
  }
  return parts.empty() ? ""
                       : concat("costs were not measured on this machine",
                                machine.empty() ? "" : concat(" (", machine, ")"),
                                ", so predicted times, plans and assignments are "
                                "for another machine: ",
                                join(parts, "; "),
                                "; measure with `entrain profile",
                                device == "cpu" ? "" : concat(" --device ", device),
                                "` and name the file as plan.profile");
}

}  // namespace

void check_profile(const RunConfig& config,
                   const Profile& profile,
                   std::vector<std::string>& warnings) {
  const std::string_view dtype = dtype_name_of(config.execution.precision);
  if (profile.dtype != dtype) {
    warnings.push_back(concat("plan.profile '",
                              config.plan.profile,
                              "' is of ",
                              profile.dtype,
                              ", the run computes in ",
                              dtype,
                              " (execution.precision = \"",
                              name_of(config.execution.precision),
                              "\"): predicted times, bytes and assignments are for "
                              "the other; measure with `entrain profile --dtype ",
                              dtype,
                              "`"));
  }
  if (!config.execution.paced) {
    const std::string warning = origin_warning(config, profile);
    if (!warning.empty()) {
      warnings.push_back(warning);
    }
  }
}

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
