// How lanes that are processes tell the one that commits a checkpoint what they wrote: by a file
// beside their tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "entrain/engine/checkpoint/write.h"

namespace entrain::engine {

// Writes the lane's files into the partial folder of the checkpoint, and what it wrote, last.
// Throws  SystemFailure with the path and the reason.
void hand_in_lane(const std::filesystem::path& folder,
                  std::int64_t step,
                  const LaneSnapshot& snapshot);

// What lanes 1 … num_lanes - 1 handed in for that step, in order; waits for it. The reports are
// removed, the partial folder then holds the lanes' files alone.
//
// Returns  nothing once `give_up` says so.
// Throws   InvalidInput, SystemFailure for a report that cannot be read.
std::vector<LaneFiles> collect_lanes(const std::filesystem::path& folder,
                                     std::int64_t step,
                                     int num_lanes,
                                     const std::function<bool()>& give_up);

}  // namespace entrain::engine
