// The folder that holds a run's checkpoints: names, which one is the latest, what goes.
//
//   latest                  "step-00000020 DIGEST", the digest being that of its manifest
//   step-00000020/          complete, since it got this name by a rename
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

// nullopt where there is no such file. Throws  InvalidInput when it is not what write_latest()
// made.
std::optional<Latest> read_latest(const std::filesystem::path& folder);
// Replaces the file by a rename, and syncs.
void write_latest(const std::filesystem::path& folder, const Latest& latest);

// Removes what a killed run left half-written or half-removed. Not for a folder in use.
void remove_leftovers(const std::filesystem::path& folder);

// Takes a checkpoint away in one rename; its bytes go afterwards.
// Throws  SystemFailure with the path and the reason.
void discard_checkpoint(const std::filesystem::path& folder, std::int64_t step);

// Leaves `newest` and the keep - 1 before it. Steps beyond `newest` go too: they belong to a run
// that went back behind them.
void prune(const std::filesystem::path& folder, std::int64_t newest, int keep);

}  // namespace entrain::engine
