// What the ranks of a run share within one process: steps, books, checkpoints.
//
// Read first: Run. trainer.cc has the loop that uses it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "entrain/engine/checkpoint/checkpoint_writer.h"
#include "entrain/engine/comm/comm.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/train/drift_watch.h"
#include "entrain/engine/train/dumps.h"
#include "entrain/engine/train/metrics.h"
#include "entrain/engine/train/rank_log.h"
#include "entrain/engine/train/run_speed.h"
#include "entrain/engine/train/step_source.h"
#include "entrain/engine/train/trainer.h"

namespace entrain::engine {

// For all ranks where they are threads, else for the one rank of this process.
struct Run {
  // `process`: this process's rank; null: all ranks are here.
  Run(const RunSetup& run_setup,
      const std::atomic<bool>& flag,
      const TrainEvents& train_events,
      Comm* process);

  const RunSetup& setup;
  RankPlaces places;
  const std::atomic<bool>& interrupted;
  const TrainEvents& events;
  bool in_processes;
  std::int64_t first_step;
  StepSource source;
  std::optional<MetricsLog> metrics;  // where rank 0 is, as the drift
  std::optional<DriftWatch> drift;
  RunSpeed speed;
  RankLog log;
  RunDumps dumps;
  std::vector<PreparedStep> validation;
  std::vector<std::vector<NamedParameter>> lane_parameters;  // of replica 0, after the last step
  // Of the first ranks of replica 0's lanes; none when paced.
  std::optional<CheckpointWriter> checkpoints;
  std::vector<double> losses;
  std::int64_t skipped = 0;  // steps of this run
  std::vector<double> step_seconds;
  std::vector<double> predicted_seconds;
  std::vector<double> validation_losses;
  std::atomic<bool> stopped{false};  // before all was done
  std::chrono::steady_clock::time_point saved = std::chrono::steady_clock::now();  // rank 0's
};

// What is written before the first step, by rank 0's process. Returns prepare_folders()'s line.
std::string open_folder(const RunSetup& setup);

// The notes at the start of a run, by rank 0's process.
void announce(Run& run, const std::string& set_aside);

// Books a step that all ranks have finished, by rank 0. `record` is the meeting's.
//
// Throws  SystemFailure when the loss is no number, or a checkpoint could not be written.
void finish_step(Run& run, const PreparedStep& prepared, StepRecord record);

// What rank 0's process reports of the steps it booked.
TrainResult result_of(const Run& run);

// Writes the weights of all lanes into one file and waits for the last checkpoint; of a run that
// was told to stop the checkpoint comes first.
void write_all_weights(Run& run, TrainResult& result);

// The same where ranks are processes, called by all: the other lanes of replica 0 leave their
// weights in files, which rank 0 makes one of.
void write_weights_together(Run& run, Comm& comm, TrainResult& result);

}  // namespace entrain::engine
