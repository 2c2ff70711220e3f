// Pairs of slots, one of which defers LLM work to the other: steps 3 and 4 of the paper's
// algorithm 3.
#pragma once

#include <cstdint>
#include <vector>

namespace entrain {

// The subset of `work` whose sum is closest to `target`, counted in steps of 1/1,024 of the
// total: work and target are rounded to whole steps first; of two equally close sums the smaller.
//
// Requires  every work >= 0; 0 <= target.
// Returns   rising indices into `work`.
// Cost      O(entries × 1,024).
std::vector<int> closest_subset(const std::vector<std::int64_t>& work, std::int64_t target);

struct SlotPair {
  int overloaded = 0;
  int underloaded = -1;       // -1: the odd slot, which has no partner
  std::vector<int> deferred;  // entries of the overloaded slot that move to the other, rising
  bool operator==(const SlotPair&) const = default;
};

// Slots by falling work (ties by index): the upper half, rounded up, is overloaded, the rest
// underloaded. For each overloaded i with work L_i and underloaded j: moving the subset of i's
// entries closest to (L_i - L_j) / 2 leaves the larger of both at V_ij (nothing moves if that
// would not make it smaller). T is the least value among all V and L for which every i with L_i > T
// can be matched with a distinct j with V_ij <= T. These pairs defer; the other slots are paired
// in order without deferral, and with an odd number of slots the lightest overloaded one is
// unpaired.
//
// Shapes    slots: [slot][entry] LLM work, >= 0.
// Ensures   pairs by falling work of the overloaded slot, every slot in one pair; no deferral
//           when `defer` is false; the unpaired slot last.
// Cost      O(slots² × (1,024 × entries of a slot + log slots × slots)).
// Source    Entrain paper, algorithm 3.
std::vector<SlotPair> pair_slots(const std::vector<std::vector<std::int64_t>>& slots, bool defer);

}  // namespace entrain
