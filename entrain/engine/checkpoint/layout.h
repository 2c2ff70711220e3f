// The folder of a run's checkpoints: names, the latest one, removal of old ones.
//
//   latest                  "step-00000020 DIGEST", the digest being that of its manifest
//   step-00000020/          complete; a rename gave it this name
//   .step-00000030.partial/ being written; .step-00000010.discarded/ being removed
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace entrain::engine {

inline constexpr const char* kLatestName = "latest";
inline constexpr const char* kCheckpointsName = "checkpoints";  // in a run's folder, by default

std::string checkpoint_name(std::int64_t step);
// The step of a folder's name, nullopt for any other name.
std::optional<std::int64_t> step_of(const std::string& name);

// Where a checkpoint is written before it gets its name.
std::filesystem::path partial_path(const std::filesystem::path& folder, std::int64_t step);

// Steps of the checkpoints in `folder`, rising; none where there is no such folder.
// Throws  SystemFailure when it cannot be listed.
std::vector<std::int64_t> checkpoint_steps(const std::filesystem::path& folder);

struct Latest {
  std::int64_t step = 0;
  std::string manifest_digest;
};

// nullopt if there is no such file. Throws  InvalidInput if write_latest() did not write it.
std::optional<Latest> read_latest(const std::filesystem::path& folder);
// Replaces the file by a rename, and syncs.
void write_latest(const std::filesystem::path& folder, const Latest& latest);

// Removes half-written and half-removed folders of a killed run. Not for a folder in use.
void remove_leftovers(const std::filesystem::path& folder);

// Renames a checkpoint away in one operation, then removes its bytes.
// Throws  SystemFailure with the path and the reason.
void discard_checkpoint(const std::filesystem::path& folder, std::int64_t step);

// Keeps `newest` and the keep - 1 before it. Steps after `newest` are removed too: they belong to a
// run that was resumed from an earlier step.
void prune(const std::filesystem::path& folder, std::int64_t newest, int keep);

}  // namespace entrain::engine
