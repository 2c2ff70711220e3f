// The stable batch size b_min: the number of samples from which a batch's work needs one split of
// devices.
//
// Read first: find_stable_batch(). docs/static-plan.md defines what is certified.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "entrain/core/planner/split_region.h"
#include "entrain/core/planner/work_times.h"

namespace entrain {

// Number of batches that must agree with the reference for the claim "a fresh batch differs with
// probability at most `error`" to be wrong with probability at most `alpha`: ⌈ln α / ln(1 - p)⌉,
// 59 for 5 % and 5 %.
//
// Throws    InvalidInput unless both lie strictly between 0 and 1, or for more than 10^6 draws.
int num_validation_draws(double alpha, double error);

struct StableBatchRequest {
  WorkTimes work_ns;  // [module][sample], every work >= 0
  int devices = 16;   // of one replica, >= modules; the devices of a TP · CP group count as one
  double alpha = 0.05;
  double error = 0.05;
  int limit = 0;          // largest batch size to try; 0: the number of samples
  std::vector<int> also;  // batch sizes to draw as well, for the report; each >= 1
  std::uint64_t seed = 0;
  bool whole_counts = true;  // false: a size's draws end at the second split, counts are too few
  std::function<void(double share)> progress;  // fraction of the draws; may be empty
};

struct CountedSplit {
  std::vector<int> devices_of;  // [module]
  int count = 0;                // batches that need it
};

// The splits needed by the drawn batches of one size.
struct BatchSizeSplits {
  int batch = 0;  // samples
  bool with_replacement = false;
  std::vector<int> reference;        // split of the first batch drawn
  std::vector<CountedSplit> splits;  // by count, falling; counts add up to draws + 1
  [[nodiscard]] bool settled() const { return splits.size() == 1; }
};

struct StableBatchResult {
  int b_min = 0;  // 0: none found, see reason
  std::string reason;
  int draws = 0;                       // validation batches of each size
  double alpha = 0;                    // of one size
  double error = 0;                    // certified for batches of b_min samples
  int sizes_tried = 0;                 // by the search
  std::int64_t proven = 0;             // by proven_stable_batch(): this size and all above; 0: none
  SplitRegion region;                  // of the split that the work of all samples together needs
  double margin = 0;                   // of that work in it, in devices of work
  std::vector<double> shares;          // [module] of all work, in devices
  std::vector<BatchSizeSplits> sizes;  // rising; those of the search and those of `also`

  [[nodiscard]] bool is_stable(int batch) const { return b_min > 0 && batch >= b_min; }
  // Of the whole search: a wrong certificate at any size it tried. Also bounded by 1.
  [[nodiscard]] double search_alpha() const;
};

// Tries n = 1, 2, 4, … up to the proven size or the limit: a reference batch of n samples and k
// validation batches, each drawn independently by draw_study_rows() like a training step (with
// replacement if there are fewer than four batches of samples). b_min is the first n from which
// on all batches of every size tried need the split that all samples together need, by
// share_lanes() on sums of work.
//
// Ensures   a pure function of the request; the draws of a size depend only on seed and size.
// Returns   b_min = 0 with the reason if no size up to the limit settles: the mix is on or too
//           near a rounding boundary, or has too heavy tails for so few samples.
// Throws    InvalidInput without samples, for fewer devices than modules, numbers out of range, or
//           batches whose work exceeds 2^62 ns.
// Cost      O(draws × (samples + batch)) per size.
// Source    the paper's algorithm 1, which stops at the first n that agrees. Ours continues, and
//           requires the data set's own split: with rare oversized samples small batches without
//           them agree, and larger ones do not.
StableBatchResult find_stable_batch(const StableBatchRequest& request);

// "10:6"
std::string split_text(const std::vector<int>& devices_of);

}  // namespace entrain
