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

// Figures and files are of this call.
struct TrainResult : RunFigures, RunFiles {
  std::int64_t first_step = 0;  // 0, or the resumed checkpoint's
  bool interrupted = false;
};

// What a run tells its caller, and asks it, while it goes on; each may be empty.
struct TrainEvents {
  // In-process ranks do not end within three deadlines after another has failed: it ends the
  // process. Without it train() waits for them.
  std::function<void(const std::string& why)> give_up;
  // A rank of this process is about to run its first step: from now on there is something to save.
  std::function<void()> began;
  // Throws once another process's rank is known to have failed; see CheckpointWriter.
  std::function<void()> check_others;
};

// Writes into config.output: config.json, plan.json, metrics.jsonl, weights.safetensors, and for
// execution.trace_step trace_predicted.json and trace_measured.json; into checkpoint_folder() what
// `checkpoint` asks for, and one at the end. A resumed run continues metrics.jsonl, and is step for
// step the run that was never stopped: bitwise at the same layout, within rounding of sums at
// another. A finished one is left as it is.
//
// `interrupted` set from a signal handler ends the run after the step in progress, or between two
// batches of a validation; a checkpoint and then weights are written.
//
// Requires  that nobody else writes into its folders (core/base/folder_lock.h).
//
// Throws  InvalidInput, SystemFailure or InternalError of the first rank that failed, with rank,
//         operation and samples; every other rank has stopped by then. Before any step InvalidInput
//         where two ranks of lanes with several ranks would share a GPU: backward runs on one
//         thread a GPU of the process, and theirs wait for other ranks' in it.
TrainResult train(const RunSetup& setup,
                  const std::atomic<bool>& interrupted,
                  const TrainEvents& events = {});

// One rank of the same run, in a process of its own. All ranks call it with one setup (see
// prepare_together()) and share the file system; a signal that reaches one of them stops all.
// `local_rank` counts the ranks of this one's host, which share its devices out.
// Losses, weights and checkpoints are bitwise those of ranks that are threads. Every rank writes
// logs/rank-N.log besides.
//
// Returns  the figures on rank 0; on the others whether it was stopped.
// Throws   as above when this rank failed, CommAborted when another did.
TrainResult train(const RunSetup& setup,
                  const std::atomic<bool>& interrupted,
                  Comm& comm,
                  int local_rank = 0,
                  const TrainEvents& events = {});

}  // namespace entrain::engine
