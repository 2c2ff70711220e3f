// The program's version.
#pragma once

#include <string_view>

namespace entrain {

// "MAJOR.MINOR.PATCH"
std::string_view version();

}  // namespace entrain
