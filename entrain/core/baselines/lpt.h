// Longest processing time first, on one cost.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/baselines/request.h"
#include "entrain/core/graph/placement.h"

namespace entrain {

// Bins, of which the least loaded is taken next.
class LeastLoaded {
 public:
  explicit LeastLoaded(int num_bins);

  // The open bin with the least work; ties go to the fewest members, then to the first. An empty
  // bin comes before every other, whatever the members' work.
  // Requires  an open bin.
  // Cost      O(bins).
  [[nodiscard]] int least() const;
  void add(int bin, std::int64_t work);
  // Closes the bin.
  void close(int bin) { bins_[static_cast<std::size_t>(bin)].open = false; }
  [[nodiscard]] std::int64_t work(int bin) const {
    return bins_[static_cast<std::size_t>(bin)].work;
  }
  [[nodiscard]] int members(int bin) const { return bins_[static_cast<std::size_t>(bin)].members; }

 private:
  struct Bin {
    std::int64_t work = 0;
    int members = 0;
    bool open = true;
  };
  std::vector<Bin> bins_;
};

// `samples` by falling work; equal ones keep their order.
std::vector<int> falling(const std::vector<std::int64_t>& work, std::vector<int> samples);
// 0 … count - 1 by falling work, ties by index.
std::vector<int> falling(const std::vector<std::int64_t>& work);

// Whole samples by falling work, each to the least loaded replica; then those of a replica by
// falling work to its min(num_slots, samples) slots, each to the least loaded.
//
// Shapes    work: [sample], >= 0.
// Requires  at least one sample per replica.
// Ensures   every replica and every slot has a sample; the largest replica load is at most
//           (4/3 - 1/(3R)) times the least possible for R replicas; likewise for the slots of a
//           replica, given its samples.
// Cost      O(samples × (replicas + slots)).
// Source    Graham 1969 (the rule and its bound); ties as in LeastLoaded.
Placement lpt_placement(const AssignRequest& request, const std::vector<std::int64_t>& work);

}  // namespace entrain
