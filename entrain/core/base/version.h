// The program's version.
#pragma once

#include <string>
#include <string_view>

namespace entrain {

// "MAJOR.MINOR.PATCH"
std::string_view version();

// "entrain 1.0.0, 2026-11-25": the version and today's date (UTC), for what is written to be read.
std::string made_by();

}  // namespace entrain
