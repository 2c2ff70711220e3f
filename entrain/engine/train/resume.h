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

struct ResumePoint {
  std::filesystem::path checkpoint;
  Manifest manifest;
  bool continues = false;          // from the run's own folder, whose metrics go on too
  std::vector<std::string> notes;  // what changed since, where it may
};

// The checkpoint that `config.checkpoint.resume` asks for, verified. Another plan, policy or
// schedule is welcome; other learning rates, steps or versions are noted.
//
// Returns  nullopt for a run that begins anew, and for paced ones.
// Appends  to `warnings` what was passed over because it is damaged.
// Throws   InvalidInput when seed, global batch size, index or model differ, naming both values, or
//          the checkpoint lies behind the run's last step; SystemFailure when there are checkpoints
//          and none is whole.
std::optional<ResumePoint> find_resume(const RunConfig& config,
                                       const CheckpointRun& now,
                                       std::vector<std::string>& warnings);

// Makes the run's folder ready to take checkpoints: removes what a killed run left half-written,
// sets aside those that are not continued, and with checkpoint.every_steps creates it.
//
// Returns  a line about what was set aside, else empty.
// Throws   SystemFailure when the folder cannot be made or changed.
std::string prepare_checkpoint_folder(const RunConfig& config,
                                      const std::optional<ResumePoint>& resume);

}  // namespace entrain::engine
