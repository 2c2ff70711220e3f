#include "entrain/cli/engine_handover.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::cli {
namespace {

constexpr std::array<std::string_view, 6> kOfTheEngine = {
    "profile", "train", "eval", "checkpoint", "--help", "-h"};

}  // namespace

void hand_over_to_engine(int argc, char** argv) {
  if (argc < 2 ||
      std::find(kOfTheEngine.begin(), kOfTheEngine.end(), argv[1]) == kOfTheEngine.end()) {
    return;
  }
  const std::filesystem::path engine =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "entrain-engine";
  execv(engine.c_str(), argv);
  throw SystemFailure(concat("cannot start ",
                             engine.string(),
                             ", the part of the program that needs torch: ",
                             std::generic_category().message(errno)));
}

}  // namespace entrain::cli
