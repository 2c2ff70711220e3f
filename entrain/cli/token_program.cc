#include "entrain/cli/token_program.h"

#include <cstdlib>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::cli {
namespace {

TokenizerOptions of_this_process;

}  // namespace

void set_token_program(TokenizerOptions options) {
  of_this_process = std::move(options);
}

TokenizerOptions find_token_program() {
  if (!of_this_process.python.empty()) {
    return of_this_process;
  }
  TokenizerOptions result;
  const char* named = std::getenv("ENTRAIN_PYTHON");
  result.python = named != nullptr && *named != '\0'                   ? named
                  : std::filesystem::exists(ENTRAIN_CONFIGURED_PYTHON) ? ENTRAIN_CONFIGURED_PYTHON
                                                                       : "python3";
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  // Of a build folder; of an installation.
  for (const char* folder : {"../../python", "../share/entrain/python"}) {
    result.packages = (program / folder).lexically_normal();
    if (std::filesystem::exists(result.packages / "entrain" / "tokens.py")) {
      return result;
    }
  }
  throw SystemFailure(concat(
      "the Python package `entrain`, which tokenizes, is not beside '", program.string(), "'"));
}

}  // namespace entrain::cli
