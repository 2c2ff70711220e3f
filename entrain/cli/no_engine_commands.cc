// Stand-ins for the engine's commands in the program without torch: in a core-only build they say
// how to get them; beside the engine's program they are never reached.
#include "entrain/core/base/errors.h"

#include "entrain/cli/command.h"

namespace entrain::cli {
namespace {

void add_missing(CLI::App& app, Action& action, const char* name, const char* description) {
  CLI::App* command = app.add_subcommand(name, description);
  command->allow_extras();
  command->callback([name, &action] {
    action = [name]() -> int {
      throw InvalidInput(std::string("`entrain ") + name +
                         "` needs the engine; this program was built without torch. Build it with "
                         "`make build`.");
    };
  });
}

}  // namespace

void add_profile_command(CLI::App& app, Action& action) {
  add_missing(app, action, "profile", "Measures layer costs (needs the engine).");
}

void add_train_command(CLI::App& app, Action& action) {
  add_missing(app, action, "train", "Trains a model (needs the engine).");
}

void add_eval_command(CLI::App& app, Action& action) {
  add_missing(app, action, "eval", "Judges trained weights (needs the engine).");
}

void add_checkpoint_command(CLI::App& app, Action& action) {
  add_missing(
      app, action, "checkpoint", "Shows, verifies, exports checkpoints (needs the engine).");
}

}  // namespace entrain::cli
