// The `entrain` program and, with torch, `entrain-engine`.
#include <string_view>

#include "entrain/core/base/partial_files.h"

#include "entrain/cli/engine_handover.h"
#include "entrain/cli/exit_code.h"
#include "entrain/cli/program.h"

int main(int argc, char** argv) {
  return entrain::cli::exit_code_of([&] {
#ifdef ENTRAIN_HANDS_OVER
    const bool asks = argc > 2 && argv[1] == std::string_view("help");
    if (argc > 1 && entrain::cli::is_for_the_engine(argv[asks ? 2 : 1])) {
      entrain::cli::hand_over_to_engine(argv);
    }
#endif
    entrain::remove_partial_files_on_signals();
    return entrain::cli::run_program({argv + 1, argv + argc});
  });
}
