// Where a run begins: at its first step, or after a matching checkpoint.
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
inline constexpr const char* kModelFolderName = "model";  // likewise, if the model is such a folder
inline constexpr const char* kAdapterFolderName = "adapter";  // instead, with lora.export "adapter"
inline constexpr const char* kStepKey = "step";               // metadata key: steps trained

struct ResumePoint {
  std::filesystem::path checkpoint;
  Manifest manifest;
  bool continues = false;          // from the run's own folder; metrics.jsonl continues too
  bool finished = false;           // the run's last step is done and its weights are written
  std::vector<std::string> notes;  // permitted changes since the checkpoint
};

// The checkpoint selected by `config.checkpoint.resume`, verified. Plan, policy and schedule may
// differ, and there may be more steps. Data, seed and optimizer settings identify a run and
// must match unless "accept" or a path is given; the model must always match.
//
// Returns  nullopt for a run that starts from the beginning, and for paced ones.
// Appends  to `warnings` what was skipped because it is damaged, and that a run killed before its
//          first checkpoint starts again.
// Throws   InvalidInput if the run folder holds another run, or files of one without a checkpoint
//          (the message lists the options), or the checkpoint is after the run's last step;
//          SystemFailure if there are checkpoints and none is complete.
std::optional<ResumePoint> find_resume(const RunConfig& config,
                                       const CheckpointRun& now,
                                       std::vector<std::string>& warnings);

// Prepares the run's folders: removes half-written files of a killed run, moves an earlier run
// that is not continued into earlier-N of its folder, creates the folder for checkpoints.
//
// Returns  a line about what was moved, else empty.
// Throws   SystemFailure if a folder cannot be made or changed.
std::string prepare_folders(const RunConfig& config, const std::optional<ResumePoint>& resume);

}  // namespace entrain::engine
