#include "entrain/core/base/version.h"

#include <array>
#include <ctime>

#include "entrain/core/base/text.h"

namespace entrain {

std::string_view version() {
  return ENTRAIN_VERSION;
}

std::string made_by() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 16> day{};
  std::strftime(day.data(), day.size(), "%Y-%m-%d", &parts);
  return concat("entrain ", version(), ", ", day.data());
}

}  // namespace entrain
