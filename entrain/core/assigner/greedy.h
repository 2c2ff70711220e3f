// Constructions: samples to replicas, a replica's samples to slots of given target sizes.
#pragma once

#include <vector>

#include "entrain/core/assigner/slot_shape.h"
#include "entrain/core/baselines/loads.h"
#include "entrain/core/graph/placement.h"

namespace entrain {

// Samples in falling order, each to the replica where the sum of fourth powers of its lanes' loads
// grows least, beside those that are `dealt` already; every replica gets one. Result: [replica]
// samples, those dealt before and then the others, each in falling order.
//
// Requires  dealt is empty, or [replica] and leaves a sample for each replica without any.
std::vector<std::vector<int>> deal_to_replicas(const BatchLoads& loads,
                                               int replicas,
                                               const std::vector<std::vector<int>>& dealt = {});

// The same with long samples together: those whose path through all stages takes more than a
// quarter of a replica's work go to the first replica until they fill 0.9 of it, then to the next.
// Only these replicas then wait for long paths; apart, long samples would make every replica wait.
// Empty where fewer than two are long, or no replica would be without. Cost  O(units × stages +
// samples × replicas).
std::vector<std::vector<int>> deal_together(const StepCosts& costs,
                                            const BatchLoads& loads,
                                            int replicas);

struct SlotRule {
  int num_slots = 1;
  SlotShape shape = kTriangle;
  int lead = 0;        // by so many 24ths of the slots the LLM's work is longest earlier, and the
                       // encoders' later, than `shape` says
  int text_front = 0;  // first slots reserved for text-only samples, so that the LLM's lanes
                       // work while the encoders' fill
  int text_back = 0;   // last slots likewise
  bool spread_segments = false;  // segments of samples with several may have separate slots
  int spread_heavy = 0;          // likewise, but only of samples heavier than a slot, and no more
                                 // than so many slots earlier
  int bytes_percent = 0;         // if not 0: slots that would fill a lane over so much of its limit
                                 // are closed
  bool by_ratio = false;         // samples in rising order of encoder over LLM work, cut into slots
  bool operator==(const SlotRule&) const = default;
};

// The rule for fewer samples: no more slots than samples, and none of them reserved for text where
// that would leave none for segments.
SlotRule rule_for(SlotRule rule, int num_samples);

// Places a replica's samples: in falling order each to the slot where Σ (load / target)⁴ over slots
// and lanes grows least, in true lane time; ties to the earlier slot. With `spread_segments`,
// segments of samples that have several then move to earlier slots, at most max_deferral before
// their sample's (-1: any), where that sum falls by more than a tenth of the segment's share. With
// `spread_heavy` likewise those of samples with more encoder work than a mean slot, at most so many
// slots before their sample's.
//
// With `bytes_percent` a slot in which a lane would hold more than the plan allows in the order of
// 1F1B (slot_bytes.h) is closed to the sample; where all are, it goes to the one that exceeds it
// least.
//
// With `by_ratio` instead: in rising order of the encoders' share of their work, cut into slots of
// the targets' shares, so that the LLM's lanes start early and never starve: the order of a
// two-machine flow shop (Johnson 1954), suited to encoders without backward.
//
// Requires  loads.lane_bytes with `bytes_percent`; samples in falling order;
//           0 <= text_front + text_back < num_slots, and these slots are closed to samples that
//           have segments.
// Cost      O(units × slots).
void place_in_slots(const Plan& plan,
                    const BatchLoads& loads,
                    const StepCosts& costs,
                    int replica,
                    const SlotRule& rule,
                    Placement& placement);

}  // namespace entrain
