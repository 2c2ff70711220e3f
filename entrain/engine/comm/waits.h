// Which rank waits for which, and which silent rank ends such a chain.
#pragma once

#include <map>
#include <string>

namespace entrain::engine {

// What a rank has been waiting for longer than half a deadline.
struct Wait {
  int peer = 0;      // rank it waits for
  std::string what;  // "message number 3 on channel 0 from rank 1 to rank 0"
};

// The rank at the end of a chain of waits: "rank 0 waits for rank 1 (barrier with rank 1 over …);
// rank 1 is not known to wait", or a statement that they wait in a cycle. Any wait of a chain may
// reach its deadline first, so the rank its own message names may be a victim as well.
//
// waits: by rank; ranks that do not wait are absent. `rank`: the start of the chain.
std::string end_of_waits(const std::map<int, Wait>& waits, int rank);

}  // namespace entrain::engine
