// entrain env: versions and devices, for reports.
#include <iostream>
#include <thread>

#include <nlohmann/json.hpp>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/version.h"
#include "entrain/core/dataset/text.h"
#include "entrain/core/schedule/schedule.h"

#include "entrain/cli/command.h"

namespace entrain::cli {
namespace {

int run(bool json) {
#ifdef ENTRAIN_HAS_ENGINE
  const std::string engine = std::string("LibTorch ") + ENTRAIN_TORCH_VERSION;
#else
  const std::string engine = "none (core only)";
#endif
  const Json report = {{"entrain", std::string(version())},
                       {"engine", engine},
                       {"compiler", __VERSION__},
                       {"processors", std::thread::hardware_concurrency()},
                       {"policies", policy_names()},
                       {"schedules", schedule_names()},
                       {"text_digest", text_digest()}};
  if (json) {
    print_json(report);
    return 0;
  }
  for (const auto& [key, value] : report.items()) {
    out() << key << ": " << (value.is_string() ? value.get<std::string>() : value.dump()) << "\n";
  }
  return 0;
}

}  // namespace

void add_env_command(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      add_command(app, "env", "Shows versions, engine, policies and schedules.", "entrain env");
  command->add_flag("--json", *json, "print as one line of JSON");
  command->callback([json, &action] { action = [json] { return run(*json); }; });
}

}  // namespace entrain::cli
