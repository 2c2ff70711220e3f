// JSON as text, for files and the console. Every document that may hold text of a user (ids, paths,
// answers) is written by this function.
#pragma once

#include <string>

#include "entrain/core/base/json.h"

namespace entrain {

// One line, or indented by `indent` >= 0 blanks a level. Bytes that are not UTF-8, which JSON
// cannot hold, become U+FFFD, so that a sample with such an id does not end a run.
std::string json_text(const Json& value, int indent = -1);

}  // namespace entrain
