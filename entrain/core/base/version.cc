#include "entrain/core/base/version.h"

#include <ctime>

#include <fmt/chrono.h>

namespace entrain {

std::string_view version() {
  return ENTRAIN_VERSION;
}

std::string made_by() {
  return fmt::format("entrain {}, {:%Y-%m-%d}", version(), fmt::gmtime(std::time(nullptr)));
}

}  // namespace entrain
