// Independent work on several threads.
#pragma once

#include <cstdint>
#include <functional>

namespace entrain {

// Calls work(0) … work(count - 1), each once, on up to `threads` threads in any order. Calls must
// not share outputs, so that results do not depend on the number of threads.
//
// Requires  threads >= 1.
// Throws    the exception of work(); of several calls, that of the lowest index that ran. Calls not
//           begun by then are skipped.
void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work);

}  // namespace entrain
