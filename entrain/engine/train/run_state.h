// State shared by the ranks of a run within one process, and its folder.
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
#include "entrain/engine/train/rank_data.h"
#include "entrain/engine/train/rank_log.h"
#include "entrain/engine/train/run_record.h"
#include "entrain/engine/train/step_source.h"

namespace entrain::engine {

// For all ranks if they are threads, else for the one rank of this process.
struct Run {
  // `process`: this process's rank; null: all ranks are here. `check_others`: as in
  // CheckpointWriter.
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
  LaneReaders lane_readers;
  std::optional<RunRecord> record;  // only in rank 0's process
  RankLog log;
  RunDumps dumps;
  std::vector<PreparedStep> validation;                      // none when paced
  std::vector<std::vector<NamedParameter>> lane_parameters;  // of replica 0, after the last step
  // Of the first ranks of replica 0's lanes; none if paced.
  std::optional<CheckpointWriter> checkpoints;
  std::atomic<bool> stopped{false};  // before all steps were done
};

// Writes the files of a run's start, in rank 0's process. Returns prepare_folders()'s line.
std::string open_folder(const RunSetup& setup);

// The files of a finished run, in rank 0's process.
struct RunFiles {
  std::filesystem::path weights;     // empty in a paced run
  std::filesystem::path folder;      // of a Hugging Face model, with these weights; else empty
  std::filesystem::path checkpoint;  // the newest written by this call, else empty
};

// Writes the weights of all lanes into one file and waits for the last checkpoint; if the run
// was told to stop, the checkpoint comes first.
RunFiles write_all_weights(Run& run);

// The same if ranks are processes, called by all: the other lanes of replica 0 write their
// weights to files, which rank 0 merges.
RunFiles write_weights_together(Run& run, Comm& comm);

}  // namespace entrain::engine
