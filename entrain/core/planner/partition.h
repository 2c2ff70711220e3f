// A module's layers cut into stages, exactly and within memory.
//
// Read first: partition_layers(). Frozen layers have their reduced costs: a layer pays the input
// and the weight gradient only if training needs them (see step_costs.h), and the cut uses that.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/spec/plan.h"

namespace entrain {

// Limits on a stage besides its time.
struct StageRules {
  // [layer] nanoseconds that a stage which begins there pays in addition to its layers; rising or
  // equal; empty: nothing.
  std::vector<std::int64_t> entry_ns;
  // [layer] bytes that the layer needs on its stage: its static bytes and its
  // activations times the microbatches in flight; empty: nothing.
  std::vector<std::int64_t> layer_bytes;
  std::int64_t capacity_bytes = 0;  // of a stage; 0 = no limit
};

struct Partition {
  std::vector<LayerRange> stages;  // empty if no cut fits
  std::int64_t largest_ns = 0;     // of its stages
  // If memory alone excludes every cut: by how many bytes the largest stage of the most even cut
  // (by bytes) exceeds the capacity.
  std::int64_t missing_bytes = 0;

  [[nodiscard]] bool fits() const { return !stages.empty(); }
};

// The contiguous cut into `stages` parts within the rules whose largest time is least; of several
// such cuts the one whose earlier parts end first. Every part has at least one layer.
//
// Requires  every number >= 0; sums fit 64 bits; entry_ns and layer_bytes as long as layer_ns.
// Returns   no stages when stages < 1, there are fewer layers than stages, or nothing fits.
// Cost      O(layers² × stages).
// Source    the paper's algorithm 2: F(l, p) = min over l' of max(F(l', p - 1), T(l', l)); bytes
//           and entries are ours.
Partition partition_layers(const std::vector<std::int64_t>& layer_ns,
                           int stages,
                           const StageRules& rules = {});

// The stages of partition_layers() without rules.
std::vector<LayerRange> min_max_partition(const std::vector<std::int64_t>& layer_ns, int stages);

// So many stages for each of `lanes` lanes, stage i on lane i mod lanes. The stages of
// min_max_partition(), then borders move by a layer as long as that brings the fullest lane, of
// equal ones the next, or else the slowest stage less. A better cut may exist.
//
// Requires  lanes, virtual_stages >= 1.
// Returns   as min_max_partition(), which it is with one stage a lane or one lane.
std::vector<LayerRange> wrapped_partition(const std::vector<std::int64_t>& layer_ns,
                                          int lanes,
                                          int virtual_stages);

constexpr std::int64_t kNoPartition = -1;

// For 1, 2, … `most_stages` stages the largest time of the best cut; kNoPartition if none fits.
//
// Shapes    result: [stages - 1].
// Cost      O(layers² × most_stages), as one partition_layers().
std::vector<std::int64_t> least_largest_ns(const std::vector<std::int64_t>& layer_ns,
                                           int most_stages,
                                           const StageRules& rules = {});

}  // namespace entrain
