#include "entrain/engine/train/profile_check.h"

#include <optional>
#include <string_view>

#include "entrain/core/base/text.h"
#include "entrain/core/spec/cost_origin.h"

namespace entrain::engine {
namespace {

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

}  // namespace entrain::engine
