// The `entrain` program and, with torch, `entrain-engine`.
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/partial_files.h"
#include "entrain/core/base/text.h"

#include "entrain/cli/program.h"

#ifdef ENTRAIN_HANDS_OVER
namespace {

// Replaces this process by the program `entrain-engine` in the same folder, with the same
// arguments.
[[noreturn]] void hand_over_to_engine(char** argv) {
  const std::filesystem::path engine =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "entrain-engine";
  execv(engine.c_str(), argv);
  throw entrain::SystemFailure(entrain::concat("cannot start ",
                                               engine.string(),
                                               ", the program that uses torch: ",
                                               std::generic_category().message(errno)));
}

}  // namespace
#endif

int main(int argc, char** argv) {
  return entrain::cli::exit_code_of([&] {
#ifdef ENTRAIN_HANDS_OVER
    const bool asks = argc > 2 && argv[1] == std::string_view("help");
    if (argc > 1 && entrain::cli::is_for_the_engine(argv[asks ? 2 : 1])) {
      hand_over_to_engine(argv);
    }
#endif
    entrain::remove_partial_files_on_signals();
    return entrain::cli::run_program({argv + 1, argv + argc});
  });
}
