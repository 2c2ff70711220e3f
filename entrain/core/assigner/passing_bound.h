// How long a replica takes that holds a long sample, whatever passes it.
#pragma once

#include <cstdint>
#include <vector>

namespace entrain {

// The operations of a sample along one way through lanes: forwards by rising stages, then backwards
// by falling ones. The way of every sample is the same, or a part of it.
struct PassingSample {
  std::int64_t length = 0;  // ns of all of them; 0: the sample does not go the whole way
  std::int64_t least = 0;   // ns of the shortest of them
};

// A lane on which replicas hold samples.
struct PassedLane {
  std::vector<std::int64_t> work;  // ns, [sample]
  std::int64_t around = 0;         // ns before and after the work: whatever a replica holds
};

// While a sample g goes its way, every other sample j of its replica delays it, or what is before
// or after it, by one of j's operations at least. For if j's forward on the first stage comes
// before g's, it delays g's start. Otherwise it comes after, and at the first later stage where j's
// forward comes before g's it lies between two operations of g, on the lane of the second. Where
// there is no such stage, the same holds for backwards from the last stage on, and if j's backward
// on the first stage comes after g's, it delays the end. All that delays g before one of its
// operations is on that operation's lane, so that it adds up:
//
//     time of g's replica  ≥  around + length of g + the sum of `least` of its other samples
//
// and of n long samples, which are on m replicas, each the longest of its own:
//
//     m × time  ≥  m × around + longest + (m − 1) × shortest + `least` of all others there.
//
// What these replicas cannot hold is work of the R − m other ones, of which every lane is a bound.
// The least time at which any m, and any choice of samples, is possible (of fractions of samples,
// by work over `least`) bounds the step. n runs over 1 and a few multiples of R.
//
// Requires  samples.size() == lanes[l].work.size(); known ≥ 0, replicas ≥ 1.
// Returns   the largest of `known` and this bound over lanes and n, in ns.
// Cost      O(lanes × samples log samples).
std::int64_t passing_bound(const std::vector<PassingSample>& samples,
                           std::int64_t around,
                           const std::vector<PassedLane>& lanes,
                           int replicas,
                           std::int64_t known);

}  // namespace entrain
