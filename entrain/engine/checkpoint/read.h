// Reading checkpoints: which one to use, whether it is complete, its tensors at any layout.
//
// Read first: newest_usable(). Every digest is checked before the content is used.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "entrain/core/spec/model.h"

#include "entrain/engine/checkpoint/manifest.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/models/tensor_info.h"

namespace entrain::engine {

// Only the manifest.
// Throws  InvalidInput if it is missing or damaged.
Manifest read_manifest(const std::filesystem::path& checkpoint);

// What a checkpoint of the model must hold: every parameter, frozen ones included, and both moments
// of the trained ones. Draws and allocates nothing.
std::vector<TensorInfo> expected_tensors(const ModelSpec& model);

struct CheckpointProblem {
  std::filesystem::path file;
  std::string message;
};

struct Verification {
  std::optional<Manifest> manifest;  // if readable
  std::vector<CheckpointProblem> problems;
  [[nodiscard]] bool ok() const { return problems.empty(); }
};

// Checks one checkpoint's folder: the manifest, every file's size and digest, that the files hold
// the tensors the manifest lists, and that these are all the model needs, with its shapes.
//
// Never throws for the folder's content; each fault becomes a problem.
Verification verify_checkpoint(const std::filesystem::path& checkpoint);

// Whether `latest` names a checkpoint of the folder and its digest matches.
std::vector<CheckpointProblem> verify_latest(const std::filesystem::path& folder);

// What a user's path names: one checkpoint, or a folder of them.
struct CheckpointPlace {
  std::filesystem::path checkpoint;  // empty: a folder of them
  std::filesystem::path folder;      // empty: one checkpoint
};

// `path` is a checkpoint, a folder of checkpoints, or a run folder with one under its usual name.
// Throws  InvalidInput when it is none of these.
CheckpointPlace checkpoint_place(const std::filesystem::path& path);

struct UsableCheckpoint {
  std::filesystem::path path;
  Manifest manifest;
  std::vector<std::string> warnings;  // what was skipped, and why
};

// The checkpoint that `latest` names or, if that is damaged, the newest complete one before it.
//
// Returns  nullopt for a folder without checkpoints, or if there is no folder.
// Throws   SystemFailure if there are checkpoints and none is complete, with every reason.
std::optional<UsableCheckpoint> newest_usable(const std::filesystem::path& folder);

// The checkpoint at `path` (see checkpoint_place()); of a folder, newest_usable()'s choice. A
// checkpoint named directly is never replaced by another.
//
// Throws  InvalidInput, SystemFailure as those do.
UsableCheckpoint usable_at(const std::filesystem::path& path);

// Copies the checkpoint's values into tensors of these names, in place. It does not depend on which
// lane wrote them, so any layout can load; files without a requested tensor are not opened.
//
// Throws  InvalidInput when a tensor is missing, has another shape or dtype there, or holds NaN or
//         infinity; then some tensors may have been changed.
void load_tensors(const std::filesystem::path& checkpoint,
                  const Manifest& manifest,
                  const std::vector<NamedParameter>& tensors);

// All weights, without optimizer state, in the model's order.
//
// Requires  a checkpoint that has been verified.
std::vector<NamedParameter> checkpoint_weights(const std::filesystem::path& checkpoint,
                                               const Manifest& manifest);

// Writes them into one file, with the metadata that readers of Hugging Face checkpoints expect.
//
// Returns   the number of tensors.
std::size_t export_weights(const std::filesystem::path& checkpoint,
                           const Manifest& manifest,
                           const std::filesystem::path& file);

}  // namespace entrain::engine
