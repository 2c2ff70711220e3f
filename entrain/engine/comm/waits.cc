#include "entrain/engine/comm/waits.h"

#include <set>

#include "entrain/core/base/text.h"

namespace entrain::engine {

std::string end_of_waits(const std::map<int, Wait>& waits, int rank) {
  std::string text;
  std::set<int> seen;
  for (auto wait = waits.find(rank); wait != waits.end(); wait = waits.find(rank)) {
    if (!seen.insert(rank).second) {
      return text + "they wait in a cycle";
    }
    text += concat("rank ", rank, " waits for rank ", wait->second.peer, " (");
    text += wait->second.what + "); ";
    rank = wait->second.peer;
  }
  return text + concat("rank ", rank, " is not known to wait");
}

}  // namespace entrain::engine
