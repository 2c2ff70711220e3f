// Glob patterns over names.
#pragma once

#include <string_view>

namespace entrain {

// Whether the pattern fits all of `text`. `*` is any text, `?` any one character, `[abc]`, `[a-z]`
// and `[!a-z]` one character of a set; every other character is itself. Nothing is special about
// dots. A set without `]` is text.
//
// Cost    O(pattern · text) at most, no allocation.
bool fits_glob(std::string_view pattern, std::string_view text);

}  // namespace entrain
