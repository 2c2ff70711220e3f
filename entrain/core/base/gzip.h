// Bytes in gzip's form.
#pragma once

#include <string>
#include <string_view>

namespace entrain {

// One member, without name or time: equal bytes give equal results.
//
// Throws  SystemFailure when memory does not suffice.
std::string gzip(std::string_view bytes);

}  // namespace entrain
