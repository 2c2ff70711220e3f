// Writing one checkpoint: every lane writes its own files, then one commit makes it visible.
//
// Read first: commit_checkpoint(). Lanes may be threads or processes that share a folder: each
// writes into the same partial folder, with write_lane() or hand_in_lane(), and passes its
// LaneFiles to the one that commits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "entrain/engine/checkpoint/manifest.h"
#include "entrain/engine/models/stages.h"

namespace entrain::engine {

// A lane's tensors at the end of a step, as copies in host memory.
struct LaneSnapshot {
  int lane = 0;
  std::vector<NamedParameter> weights;  // under their Hugging Face names
  std::vector<NamedParameter> moments;  // of the optimizer; may be empty
  SkipCounts skipped;                   // the same on all lanes
};

LaneSnapshot snapshot_of(int lane,
                         const std::vector<NamedParameter>& weights,
                         const std::vector<NamedParameter>& moments);

// Makes an empty folder for the checkpoint of `step`.
// Throws  SystemFailure with the path and the reason.
std::filesystem::path begin_checkpoint(const std::filesystem::path& folder, std::int64_t step);

// Writes weights-lane-XXXXX.safetensors and optimizer-lane-XXXXX.safetensors, synced.
// Throws  SystemFailure with the path and the reason.
LaneFiles write_lane(const std::filesystem::path& partial, const LaneSnapshot& snapshot);

// Lanes that are processes report what they wrote to the lane that commits, in a file beside their
// tensors.
//
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

// Call after every lane has written into partial_path(folder, manifest.step). Writes the manifest,
// syncs, renames the checkpoint, updates `latest`, and removes all but the last `keep`.
//
// Ensures  at every moment, also after a kill, an earlier checkpoint is complete and named, and
//          every named checkpoint is complete.
// Throws   SystemFailure with the path and the reason.
void commit_checkpoint(const std::filesystem::path& folder, const Manifest& manifest, int keep);

}  // namespace entrain::engine
