// One list of commands, for `entrain`, with torch `entrain-engine`, and the Python package. Each
// command is one file: <name>_command.cc, engine_<name>_command.cc where it needs the engine.
#include "entrain/cli/program.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string_view>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/version.h"
#include "entrain/core/report/table.h"

#include "entrain/cli/command.h"

namespace entrain::cli {
namespace {

#ifdef ENTRAIN_WITH_TORCH
constexpr bool kWithTorch = true;
#else
constexpr bool kWithTorch = false;
#endif

struct Command {
  const char* name;
  // Null: only in the program with torch, or with more arguments than these.
  void (*add)(CLI::App& app, Action& action);
  const char* purpose = nullptr;  // of one that may be null
};

constexpr std::array<Command, 19> kCommands = {{
    {"index", add_index_command},
    {"profile", kWithTorch ? add_profile_command : nullptr, "Measures layer costs"},
    {"cost", add_cost_command},
    {"plan", add_plan_command},
    {"b-min", add_b_min_command},
    {"assign", add_assign_command},
    {"simulate", add_simulate_command},
    {"explain", add_explain_command},
    {"report", add_report_command},
    {"study", add_study_command},
    {"audit", add_audit_command},
    {"export", add_export_command},
    {"train", nullptr, "Trains a model"},  // add_train()
    {"feed", kWithTorch ? add_feed_command : nullptr, "Decodes samples for a run on other hosts"},
    {"eval", kWithTorch ? add_eval_command : nullptr, "Evaluates trained weights"},
    {"checkpoint",
     kWithTorch ? add_checkpoint_command : nullptr,
     "Shows, verifies, exports checkpoints"},
    {"top", add_top_command},
    {"doctor", add_doctor_command},
    {"env", add_env_command},
}};

// In a build without the engine: explains how to build it.
void add_missing(CLI::App& app, Action& action, const Command& command) {
  CLI::App* missing =
      app.add_subcommand(command.name, std::string(command.purpose) + " (needs the engine).");
  missing->allow_extras();
  missing->callback([name = command.name, &action] {
    action = [name]() -> int {
      throw InvalidInput(std::string("`entrain ") + name +
                         "` needs the engine; this program was built without torch. Build it with "
                         "`make build`.");
    };
  });
}

// With the ranks that the caller has for it.
void add_train(CLI::App& app, Action& action, const ProcessGroups& groups) {
  if constexpr (kWithTorch) {
    add_train_command(app, action, groups);
  }
}

// Lists commands by the first sentence of their descriptions; `--help` of one has the rest.
class FirstSentences : public CLI::Formatter {
 public:
  std::string make_subcommand(const CLI::App* command) const override {
    std::string text = command->get_description();
    std::ranges::replace(text, '\n', ' ');
    const std::size_t end = text.find(". ");
    if (end != std::string::npos) {
      text.resize(end + 1);
    }
    const std::string name = "  " + command->get_name();
    return wrap(std::string(get_column_width(), ' ') + text + "\n").replace(0, name.size(), name);
  }
};

// Its message, without the advice that CLI11 adds. To CLI11 the value after an unknown option is an
// argument, so what it says of arguments then is not the mistake.
std::string message_of(const CLI::ParseError& error, const CLI::App& app) {
  const std::string unknown = unknown_words(app);
  return concat(unknown.empty() ? concat(error.what(), "\n") : unknown,
                "Run with --help for more information.");
}

}  // namespace

bool is_for_the_engine(std::string_view word) {
  return word == "--help" || word == "-h" || word == "help" ||
         std::ranges::any_of(kCommands, [&](const Command& command) {
           return command.name == word && command.add == nullptr;
         });
}

int run_program(std::vector<std::string> arguments, const ProcessGroups& groups) {
  CLI::App app("Entrain: trains multimodal LLMs with pipeline parallelism and few idle devices.",
               "entrain");
  app.set_version_flag("--version", "entrain " + std::string(version()));
  app.require_subcommand(1);
  app.formatter(std::make_shared<FirstSentences>());
  app.footer(
      "Exit codes: 0 ok, 1 bug, 2 input to correct, 3 file, device or peer failed, 4 nothing "
      "fits,\n"
      "75 a run stopped by a signal after a checkpoint: run the same command again.\n"
      "Start with: make demo");
  Action action;
  for (const Command& command : kCommands) {
    if (kWithTorch && command.name == std::string_view("train")) {
      add_train(app, action, groups);
    } else if (command.add != nullptr) {
      command.add(app, action);
    } else {
      add_missing(app, action, command);
    }
  }
  if (!arguments.empty() && arguments.front() == "help") {
    arguments.erase(arguments.begin());
    arguments.push_back("--help");
  }
  try {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
    app.parse(arguments);
  } catch (const CLI::Success& success) {
    return app.exit(success, out(), out());
  } catch (const CLI::ParseError& error) {
    throw InvalidInput(message_of(error, app));
  }
  refuse_empty_values(app);
  try {
    return action();
  } catch (const InvalidInput& error) {
    throw InvalidInput(with_options(app, error.what()));
  } catch (const SystemFailure& error) {
    throw SystemFailure(with_options(app, error.what()));
  } catch (const std::filesystem::filesystem_error& error) {
    throw SystemFailure(with_options(
        app, concat("cannot access '", error.path1().string(), "': ", error.code().message())));
  }
}

}  // namespace entrain::cli
