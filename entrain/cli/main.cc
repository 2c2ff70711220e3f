// The `entrain` program and, with torch, `entrain-engine`. Each command is one file:
// <name>_command.cc, engine_<name>_command.cc where it needs the engine.
#include <filesystem>
#include <iostream>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/partial_files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/version.h"

#include "entrain/cli/command.h"
#include "entrain/cli/engine_handover.h"
#include "entrain/cli/exit_code.h"

namespace {

int run(int argc, char** argv) {
  using namespace entrain::cli;
#ifdef ENTRAIN_HANDS_OVER
  hand_over_to_engine(argc, argv);
#endif
  CLI::App app("Entrain: trains multimodal LLMs without wasting devices.", "entrain");
  app.set_version_flag("--version", "entrain " + std::string(entrain::version()));
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 ok, 1 bug, 2 input to correct, 3 file, device or peer failed, 4 nothing "
      "fits,\n"
      "75 a run that a signal stopped behind a checkpoint: give the same command again.\n"
      "Start with: make demo");
  Action action;
  add_index_command(app, action);
  add_profile_command(app, action);
  add_cost_command(app, action);
  add_plan_command(app, action);
  add_b_min_command(app, action);
  add_assign_command(app, action);
  add_simulate_command(app, action);
  add_explain_command(app, action);
  add_train_command(app, action);
  add_eval_command(app, action);
  add_checkpoint_command(app, action);
  add_doctor_command(app, action);
  add_env_command(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    if (code != 0) {
      std::cerr << unknown_words(app);
    }
    return code == 0 ? 0 : kExitInvalid;
  }
  refuse_empty_values(app);
  try {
    return action();
  } catch (const entrain::InvalidInput& error) {
    throw entrain::InvalidInput(with_options(app, error.what()));
  } catch (const entrain::SystemFailure& error) {
    throw entrain::SystemFailure(with_options(app, error.what()));
  } catch (const std::filesystem::filesystem_error& error) {
    throw entrain::SystemFailure(with_options(
        app,
        entrain::concat(
            "cannot look at '", error.path1().string(), "': ", error.code().message())));
  }
}

}  // namespace

int main(int argc, char** argv) {
  entrain::remove_partial_files_on_signals();
  return entrain::cli::exit_code_of([&] { return run(argc, argv); });
}
