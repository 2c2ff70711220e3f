// Text within HTML.
#pragma once

#include <string>
#include <string_view>

namespace entrain {

// As text of an element or of an attribute in double quotes: <, >, & and " by their names.
std::string html_text(std::string_view text);

}  // namespace entrain
