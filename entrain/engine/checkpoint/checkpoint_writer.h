// Writes a run's checkpoints on a separate thread while ranks continue training.
//
// Read first: CheckpointWriter. A checkpoint is written after every lane has submitted its copy and
// the step has been approved; ranks do not wait for the write.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "entrain/core/base/thread_safety.h"

#include "entrain/engine/checkpoint/write.h"

namespace entrain::engine {

class CheckpointWriter {
 public:
  // `run` is written into every manifest. Nothing is created before the first checkpoint.
  //
  // `own_lane`: set if lanes are processes that share the folder; the lane of this process. Lane 0
  // waits for the others' files, at most `deadline` after its own, and commits. Empty: all lanes
  // are in this process.
  //
  // `check_others` throws once another rank is known to have failed. Any thread calls it while this
  // object waits; its error is rethrown.
  //
  // Requires  num_lanes >= 1, keep >= 1; no other object writes to `folder`.
  CheckpointWriter(std::filesystem::path folder,
                   int keep,
                   int num_lanes,
                   CheckpointRun run,
                   std::optional<int> own_lane = {},
                   std::chrono::milliseconds deadline = std::chrono::minutes(2),
                   std::function<void()> check_others = {});
  // Finishes the checkpoint being written; checkpoints that lack a lane or the approval are
  // dropped.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Submits one lane's copy at the end of step `step` - 1. Blocks while an earlier checkpoint is
  // being written, so that at most two are held in memory: slow disks slow the run down, and no
  // checkpoint is skipped.
  //
  // Throws  as check() does.
  void submit(std::int64_t step, LaneSnapshot snapshot);

  // Approves a step for writing: its losses are finite, its record is in the log.
  void approve(std::int64_t step);

  // Throws  SystemFailure when a checkpoint could not be written, with the reason; earlier
  //         checkpoints are unchanged. Nothing is written after that.
  void check();

  // Waits until everything submitted and approved is written. If lanes are processes, lane 0 calls
  // it after all others have finished. Throws  as check() does.
  void finish();

  // The newest checkpoint this object has written; empty before the first.
  [[nodiscard]] std::filesystem::path last_written();

 private:
  void work();
  // Returns  whether this lane wrote a checkpoint; false on lanes that do not commit.
  bool write(std::int64_t step, const std::vector<LaneSnapshot>& snapshots);
  bool is_closing();
  // Until nothing is being written or ready to be. Throws  as check() does.
  void wait_until_written(MutexLock& lock) ENTRAIN_REQUIRES(mutex_);
  // The first step that can be written.
  [[nodiscard]] std::optional<std::int64_t> ready() const ENTRAIN_REQUIRES(mutex_);

  std::filesystem::path folder_;
  int keep_;
  int num_lanes_;
  std::optional<int> own_lane_;
  std::chrono::milliseconds deadline_;
  std::function<void()> check_others_;
  CheckpointRun run_;
  Mutex mutex_;
  std::condition_variable changed_;
  // By step.
  std::map<std::int64_t, std::vector<LaneSnapshot>> pending_ ENTRAIN_GUARDED_BY(mutex_);
  std::int64_t approved_ ENTRAIN_GUARDED_BY(mutex_) = 0;  // highest step
  std::filesystem::path last_written_ ENTRAIN_GUARDED_BY(mutex_);
  bool writing_ ENTRAIN_GUARDED_BY(mutex_) = false;
  bool closing_ ENTRAIN_GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ ENTRAIN_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace entrain::engine
