#include "entrain/cli/engine_handover.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::cli {

void hand_over_to_engine(char** argv) {
  const std::filesystem::path engine =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "entrain-engine";
  execv(engine.c_str(), argv);
  throw SystemFailure(concat("cannot start ",
                             engine.string(),
                             ", the program that uses torch: ",
                             std::generic_category().message(errno)));
}

}  // namespace entrain::cli
