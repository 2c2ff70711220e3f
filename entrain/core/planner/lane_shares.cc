#include "entrain/core/planner/lane_shares.h"

#include <numeric>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

// Products of nanoseconds and lanes exceed 64 bits.
__extension__ using Wide = __int128;

}  // namespace

std::vector<int> share_lanes(std::span<const std::int64_t> work_ns,
                             int lanes,
                             std::span<const int> most) {
  ENTRAIN_INVARIANT(!work_ns.empty() && lanes >= std::ssize(work_ns),
                    "lanes are shared among modules that get one each");
  ENTRAIN_INVARIANT(most.empty() || most.size() == work_ns.size(), "one upper limit a module");
  const std::int64_t total = std::accumulate(work_ns.begin(), work_ns.end(), std::int64_t{0});
  const Wide whole = total > 0 ? total : 1;
  std::vector<int> result(work_ns.size(), 1);
  for (int given = static_cast<int>(work_ns.size()); given < lanes; ++given) {
    std::size_t best = work_ns.size();
    Wide best_lacking = 0;
    for (std::size_t module = 0; module < work_ns.size(); ++module) {
      if (!most.empty() && result[module] >= most[module]) {
        continue;
      }
      const Wide lacking = Wide{work_ns[module]} * lanes - whole * result[module];
      if (best == work_ns.size() || lacking > best_lacking) {
        best = module;
        best_lacking = lacking;
      }
    }
    ENTRAIN_INVARIANT(best < work_ns.size(), "upper limits leave room for every lane");
    ++result[best];
  }
  return result;
}

}  // namespace entrain
