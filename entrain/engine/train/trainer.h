// The training loop: ranks as threads or processes, steps prepared ahead, metrics, validation,
// checkpoints, weights at the end.
//
// Read first: train(). One call trains a run from its first step, or from a checkpoint, to its
// last, or to a signal.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/train/run_record.h"
#include "entrain/engine/train/run_setup.h"
#include "entrain/engine/train/run_state.h"

namespace entrain::engine {

// Figures and files of this call.
struct TrainResult : RunFigures, RunFiles {
  std::int64_t first_step = 0;  // 0, or the resumed checkpoint's
  bool interrupted = false;
};

// Callbacks of a run; each may be empty.
struct TrainEvents {
  // Called if in-process ranks do not end within three deadlines after another has failed: ends the
  // process. Without it train() waits for them.
  std::function<void(const std::string& why)> give_up;
  // Called before a rank of this process runs its first step: from then on a checkpoint is
  // possible.
  std::function<void()> began;
  // Throws once a rank of another process is known to have failed; see CheckpointWriter.
  std::function<void()> check_others;
};

// Writes into config.output: config.json, plan.json, metrics.jsonl, weights.safetensors, and for
// execution.trace_step trace_predicted.json and trace_measured.json; into checkpoint_folder() the
// checkpoints that `checkpoint` requests, and one at the end. A resumed run continues metrics.jsonl
// and equals a run that was never stopped: bitwise at the same layout, within rounding of sums at
// another. A finished run is left unchanged.
//
// `interrupted` set from a signal handler ends the run after the step in progress, or between two
// batches of a validation; a checkpoint and then weights are written.
//
// Requires  no other process writes into its folders (core/base/folder_lock.h).
//
// Throws  InvalidInput, SystemFailure or InternalError of the first rank that failed, with rank,
//         operation and samples; every other rank has stopped by then. InvalidInput before any step
//         if two ranks of lanes with several ranks would share a GPU: backward runs on one
//         thread per GPU of the process, and would wait for other ranks' backward on it.
TrainResult train(const RunSetup& setup,
                  const std::atomic<bool>& interrupted,
                  const TrainEvents& events = {});

// One rank of the same run, in its own process. All ranks call it with the same setup (see
// prepare_together()) and share the file system; a signal to one of them stops all.
// `local_rank` counts the ranks on this host, which share its devices.
// Losses, weights and checkpoints are bitwise those of ranks that are threads. Every rank also
// writes logs/rank-N.log.
//
// Returns  the figures on rank 0; on the others only whether it was stopped.
// Throws   as above if this rank failed, CommAborted if another did.
TrainResult train(const RunSetup& setup,
                  const std::atomic<bool>& interrupted,
                  Comm& comm,
                  int local_rank = 0,
                  const TrainEvents& events = {});

}  // namespace entrain::engine
