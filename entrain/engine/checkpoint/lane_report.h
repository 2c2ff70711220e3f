// How lanes that are processes report what they wrote to the lane that commits a checkpoint: in a
// file beside their tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "entrain/engine/checkpoint/write.h"

namespace entrain::engine {

// Writes the lane's files into the checkpoint's partial folder, then the report.
// Throws  SystemFailure with the path and the reason.
void hand_in_lane(const std::filesystem::path& folder,
                  std::int64_t step,
                  const LaneSnapshot& snapshot);

// The reports of lanes 1 … num_lanes - 1 for that step, in order; waits for them. Removes the
// reports, so that the partial folder holds only the lanes' files.
//
// Returns  nothing once `give_up` returns true.
// Throws   InvalidInput or SystemFailure for an unreadable report.
std::vector<LaneFiles> collect_lanes(const std::filesystem::path& folder,
                                     std::int64_t step,
                                     int num_lanes,
                                     const std::function<bool()>& give_up);

}  // namespace entrain::engine
