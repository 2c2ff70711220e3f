// Who waits for whom, and at whose silence such a chain ends.
#pragma once

#include <map>
#include <string>

namespace entrain::engine {

// What a rank has been waiting for, for long: half a deadline.
struct Wait {
  int peer = 0;      // rank from which it has to come
  std::string what;  // "message number 3 on channel 0 from rank 1 to rank 0"
};

// Which rank it is that all wait for: "rank 0 waits for rank 1 (barrier with rank 1 over …); rank 1
// is not known to wait", or that they wait in a circle. Of a chain of waits the first to reach its
// deadline may be any, so the rank that its own message names may be a victim as well.
//
// waits: by rank; those of ranks that do not wait are not there. `rank`: where the chain begins.
std::string end_of_waits(const std::map<int, Wait>& waits, int rank);

}  // namespace entrain::engine
