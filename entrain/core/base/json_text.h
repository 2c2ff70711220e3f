// JSON as text, for files and the console. This function writes every document that may hold a
// user's text (ids, paths, answers).
#pragma once

#include <string>

#include "entrain/core/base/json.h"

namespace entrain {

// One line, or indented by `indent` >= 0 blanks per level. Bytes that are not UTF-8, which JSON
// cannot hold, become U+FFFD, so that a sample with such an id does not end a run.
std::string json_text(const Json& value, int indent = -1);

}  // namespace entrain
