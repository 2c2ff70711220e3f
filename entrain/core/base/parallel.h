// Independent work on several threads.
#pragma once

#include <cstdint>
#include <functional>

namespace entrain {

// Calls work(0) … work(count - 1), each once, on up to `threads` threads in any order. What a call
// writes must be its own, so that results do not depend on the number of threads.
//
// Requires  threads >= 1.
// Throws    what work() threw, of several calls that of the lowest index that ran; calls that had
//           not begun by then are left out.
void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work);

}  // namespace entrain
