// Writes a run's checkpoints on a thread of its own while ranks train on.
//
// Read first: CheckpointWriter. A checkpoint is written once every lane has handed in its copy and
// the step has been approved; then the ranks are no longer needed for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "entrain/engine/checkpoint/write.h"

namespace entrain::engine {

class CheckpointWriter {
 public:
  // `run` goes into every manifest. Nothing is created before the first checkpoint.
  //
  // `own_lane`: where lanes are processes that share the folder, the one of this process; lane 0's
  // waits for the others' files, no longer than `deadline` behind its own, and commits. Empty: all
  // lanes are here.
  //
  // `check_others` throws once another rank is known to have failed; it is asked while this object
  // waits, by any thread, and its error is passed on.
  //
  // Requires  num_lanes >= 1, keep >= 1; `folder` is written by nobody else.
  CheckpointWriter(std::filesystem::path folder,
                   int keep,
                   int num_lanes,
                   CheckpointRun run,
                   std::optional<int> own_lane = {},
                   std::chrono::milliseconds deadline = std::chrono::minutes(2),
                   std::function<void()> check_others = {});
  // Finishes the checkpoint that is being written; those that lack a lane or the approval are
  // dropped.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Takes one lane's copy at the end of step `step` - 1. Waits while an earlier checkpoint is being
  // written, so that no more than two are held in memory and slow disks slow the run down, not the
  // checkpoints.
  //
  // Throws  as check() does.
  void submit(std::int64_t step, LaneSnapshot snapshot);

  // Every approved step may be written: its losses are finite, its record is in the log.
  void approve(std::int64_t step);

  // Throws  SystemFailure when a checkpoint could not be written, with the reason; earlier
  //         ones are as they were. Nothing is written after that.
  void check();

  // Waits until everything that was handed in and approved is written. Where lanes are processes,
  // lane 0's comes after all others have finished. Throws  as check() does.
  void finish();

  // The newest that this object has written; empty before the first.
  [[nodiscard]] std::filesystem::path last_written();

 private:
  void work();
  // Returns  whether there is a checkpoint now: not on lanes that do not commit.
  bool write(std::int64_t step, const std::vector<LaneSnapshot>& snapshots);
  bool is_closing();
  // Under the lock: until nothing is being written or ready to be. Throws  as check() does.
  void wait_until_written(std::unique_lock<std::mutex>& lock);
  // Held under the lock: the first step that can be written.
  [[nodiscard]] std::optional<std::int64_t> ready() const;

  std::filesystem::path folder_;
  int keep_;
  int num_lanes_;
  std::optional<int> own_lane_;
  std::chrono::milliseconds deadline_;
  std::function<void()> check_others_;
  CheckpointRun run_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, std::vector<LaneSnapshot>> pending_;  // by step
  std::int64_t approved_ = 0;                                  // highest step
  std::filesystem::path last_written_;
  bool writing_ = false;
  bool closing_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace entrain::engine
