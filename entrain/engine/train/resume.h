// Where a run begins: at its first step, or behind a checkpoint that fits it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "entrain/engine/checkpoint/read.h"
#include "entrain/engine/train/run_config.h"

namespace entrain::engine {

inline constexpr const char* kWeightsName = "weights.safetensors";  // in the run folder, at the end
inline constexpr const char* kStepKey = "step";  // of its metadata: how many the weights have seen

struct ResumePoint {
  std::filesystem::path checkpoint;
  Manifest manifest;
  bool continues = false;  // from the run's own folder, whose metrics go on too
  bool finished = false;   // the run's last step, and its weights are written: nothing is left
  std::vector<std::string> notes;  // what changed since, where it may
};

// The checkpoint that `config.checkpoint.resume` asks for, verified. Another plan, policy or
// schedule is welcome, as are more steps. What makes another run of it (data, seed, optimizer
// settings) must be alike unless "accept" or a path is given; the model must be either way.
//
// Returns  nullopt for a run that begins anew, and for paced ones.
// Appends  to `warnings` what was passed over because it is damaged, and that a run which was
//          killed before its first checkpoint begins again.
// Throws   InvalidInput when the run folder holds another run, or files of one without a checkpoint
//          to go on from, with the ways out, or the checkpoint lies behind the run's last step;
//          SystemFailure when there are checkpoints and none is whole.
std::optional<ResumePoint> find_resume(const RunConfig& config,
                                       const CheckpointRun& now,
                                       std::vector<std::string>& warnings);

// Makes the run's folders ready: removes what a killed run left half-written, moves an earlier run
// that is not continued into earlier-N of its folder, creates the folder for checkpoints.
//
// Returns  a line about what was set aside, else empty.
// Throws   SystemFailure when a folder cannot be made or changed.
std::string prepare_folders(const RunConfig& config, const std::optional<ResumePoint>& resume);

}  // namespace entrain::engine
