// A run file with the overrides of --set.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"

#include "entrain/engine/train/run_config.h"

namespace entrain::engine {
namespace {

// Which override a message about "FILE: path.to.key" is about; empty if about none.
std::string given_by(const std::vector<std::string>& overrides,
                     const std::string& file,
                     std::string_view message) {
  const std::string where = file + ": ";
  if (!message.starts_with(where)) {
    return "";
  }
  message.remove_prefix(where.size());
  const std::string key = concat(message.substr(0, message.find_first_of(": ")), ".");
  for (const std::string& assignment : overrides) {
    const std::string given = assignment.substr(0, assignment.find('=')) + ".";
    if (given.starts_with(key) || key.starts_with(given)) {
      return concat(" (given by --set ", assignment, ")");
    }
  }
  return "";
}

// Keys of [plan] whose place plan.file takes: those of a run file are returned, those of --set
// refused.
std::vector<std::string> unused_plan_keys(const Json& document,
                                          const std::vector<std::string>& overrides) {
  const Json& plan = document["plan"];
  const auto file = plan.find("file");
  std::vector<std::string> unused;
  if (file == plan.end() || *file == "") {
    return unused;
  }
  for (const char* key : {"replicas",
                          "num_slots",
                          "stages",
                          "tensor_parallel",
                          "single_lane",
                          "max_deferral",
                          "chunks",
                          "evaluations",
                          "bytes_per_lane_mib"}) {
    const std::string name = concat("plan.", key);
    for (const std::string& assignment : overrides) {
      if (assignment.starts_with(name + "=") || assignment.starts_with(name + ".")) {
        throw InvalidInput(concat("--set ",
                                  assignment,
                                  ": has no effect, as the plan of plan.file = ",
                                  file->dump(),
                                  " decides it; give `entrain plan` what you want, or take "
                                  "plan.file away with --set 'plan.file=\"\"'"));
      }
    }
    if (plan.contains(key)) {
      unused.push_back(name);
    }
  }
  return unused;
}

}  // namespace

RunConfig read_run_config(const std::filesystem::path& path,
                          const std::vector<std::string>& overrides) {
  Json document = path.extension() == ".json" ? read_json_file(path) : read_toml_file(path);
  const auto overridden = [&](std::string_view key) {
    return std::ranges::any_of(overrides, [&](const std::string& assignment) {
      return assignment.starts_with(concat(key, "="));
    });
  };
  if (document.is_object() && overridden("epochs") != overridden("steps")) {
    document.erase(overridden("epochs") ? "steps" : "epochs");
  }
  for (const std::string& assignment : overrides) {
    set_by_path(document, assignment);
  }
  try {
    RunConfig config = run_config_from_json(document, path.string());
    if (path.extension() != ".json" && document.contains("plan")) {  // a saved one has every key
      config.plan.unused = unused_plan_keys(document, overrides);
    }
    return config;
  } catch (const InvalidInput& error) {
    throw InvalidInput(concat(error.what(), given_by(overrides, path.string(), error.what())));
  }
}

}  // namespace entrain::engine
