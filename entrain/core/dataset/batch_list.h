// A global batch that someone gives as a list of sample ids.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrain {

// Positions in `ids` of the samples that `text` names, one id a line, in its order. Blank lines and
// lines that begin with '#' are skipped; white space around an id is not part of it.
//
// Requires  ids are unique.
// Ensures   positions are unique.
// Throws    InvalidInput naming `where` and the line: an id that `ids` does not have (with a
//           suggestion), or that is listed twice; a text without ids.
std::vector<int> rows_of_batch_list(std::string_view text,
                                    const std::string& where,
                                    std::span<const std::string> ids);

}  // namespace entrain
