// What the ranks of a run share within one process, and its folder.
//
// Read first: Run. rank_loop.h has the loop that uses it.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "entrain/engine/checkpoint/checkpoint_writer.h"
#include "entrain/engine/comm/comm.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/train/dumps.h"
#include "entrain/engine/train/prepared_step.h"
#include "entrain/engine/train/rank_log.h"
#include "entrain/engine/train/run_record.h"
#include "entrain/engine/train/step_source.h"

namespace entrain::engine {

// For all ranks where they are threads, else for the one rank of this process.
struct Run {
  // `process`: this process's rank; null: all ranks are here. `check_others`: as CheckpointWriter
  // takes it.
  Run(const RunSetup& run_setup,
      const std::atomic<bool>& flag,
      const std::function<void()>& check_others,
      Comm* process);

  const RunSetup& setup;
  RankPlaces places;
  const std::atomic<bool>& interrupted;
  bool in_processes;
  std::int64_t first_step;
  StepSource source;
  std::optional<RunRecord> record;  // where rank 0 is
  RankLog log;
  RunDumps dumps;
  std::vector<PreparedStep> validation;                      // none when paced
  std::vector<std::vector<NamedParameter>> lane_parameters;  // of replica 0, after the last step
  // Of the first ranks of replica 0's lanes; none when paced.
  std::optional<CheckpointWriter> checkpoints;
  std::atomic<bool> stopped{false};  // before all was done
};

// What is written before the first step, by rank 0's process. Returns prepare_folders()'s line.
std::string open_folder(const RunSetup& setup);

// What a run leaves, by rank 0's process.
struct RunFiles {
  std::filesystem::path weights;     // empty in a paced run
  std::filesystem::path checkpoint;  // the newest that this call wrote, else empty
};

// Writes the weights of all lanes into one file and waits for the last checkpoint; of a run that
// was told to stop the checkpoint comes first.
RunFiles write_all_weights(Run& run);

// The same where ranks are processes, called by all: the other lanes of replica 0 leave their
// weights in files, which rank 0 makes one of.
RunFiles write_weights_together(Run& run, Comm& comm);

}  // namespace entrain::engine
