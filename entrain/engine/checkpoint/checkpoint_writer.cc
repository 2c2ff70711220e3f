#include "entrain/engine/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <utility>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/thread_priority.h"
#include "entrain/core/base/version.h"

#include "entrain/engine/checkpoint/layout.h"

namespace entrain::engine {
namespace {

constexpr std::chrono::milliseconds kFailurePoll{50};  // checks whether another rank failed

// Wraps what check_others() threw while a checkpoint is written.
struct OthersFailed {
  std::exception_ptr error;
};

}  // namespace

CheckpointWriter::CheckpointWriter(std::filesystem::path folder,
                                   int keep,
                                   int num_lanes,
                                   CheckpointRun run,
                                   std::optional<int> own_lane,
                                   std::chrono::milliseconds deadline,
                                   std::function<void()> check_others)
    : folder_(std::move(folder)),
      keep_(keep),
      num_lanes_(num_lanes),
      own_lane_(own_lane),
      deadline_(deadline),
      check_others_(std::move(check_others)),
      run_(std::move(run)) {
  thread_ = std::thread([this] { work(); });
}

CheckpointWriter::~CheckpointWriter() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointWriter::submit(std::int64_t step, LaneSnapshot snapshot) {
  MutexLock lock(mutex_);
  wait_until_written(lock);
  pending_[step].push_back(std::move(snapshot));
  changed_.notify_all();
}

void CheckpointWriter::approve(std::int64_t step) {
  const MutexLock lock(mutex_);
  approved_ = std::max(approved_, step);
  changed_.notify_all();
}

void CheckpointWriter::check() {
  const MutexLock lock(mutex_);
  if (error_ != nullptr) {
    std::rethrow_exception(error_);
  }
}

void CheckpointWriter::finish() {
  MutexLock lock(mutex_);
  wait_until_written(lock);
}

void CheckpointWriter::wait_until_written(MutexLock& lock) {
  while (!changed_.wait_for(lock.native(), kFailurePoll, [&]() ENTRAIN_REQUIRES(mutex_) {
    return error_ != nullptr || (!writing_ && !ready().has_value());
  })) {
    if (check_others_) {
      lock.native().unlock();
      check_others_();
      lock.native().lock();
    }
  }
  if (error_ != nullptr) {
    std::rethrow_exception(error_);
  }
}

std::filesystem::path CheckpointWriter::last_written() {
  const MutexLock lock(mutex_);
  return last_written_;
}

std::optional<std::int64_t> CheckpointWriter::ready() const {
  const int wanted = own_lane_.has_value() ? 1 : num_lanes_;
  for (const auto& [step, snapshots] : pending_) {
    if (step <= approved_ && std::ssize(snapshots) == wanted) {
      return step;
    }
  }
  return std::nullopt;
}

bool CheckpointWriter::is_closing() {
  const MutexLock lock(mutex_);
  return closing_;
}

bool CheckpointWriter::write(std::int64_t step, const std::vector<LaneSnapshot>& snapshots) {
  if (own_lane_.has_value() && *own_lane_ != 0) {
    hand_in_lane(folder_, step, snapshots.front());
    return false;
  }
  Manifest manifest;
  manifest.step = step;
  manifest.entrain_version = version();
  manifest.torch_version = ENTRAIN_TORCH_VERSION;
  manifest.run = run_;
  // Files of a killed run were removed before this one started; other processes may be writing.
  const std::filesystem::path partial =
      own_lane_.has_value() ? partial_path(folder_, step) : begin_checkpoint(folder_, step);
  manifest.skipped = snapshots.front().skipped;
  for (const LaneSnapshot& snapshot : snapshots) {
    manifest.lanes.push_back(write_lane(partial, snapshot));
  }
  if (own_lane_.has_value()) {
    const auto end = std::chrono::steady_clock::now() + deadline_;
    const auto is_late = [end] { return std::chrono::steady_clock::now() > end; };
    auto asked = std::chrono::steady_clock::now();
    const auto give_up = [&] {
      if (const auto now = std::chrono::steady_clock::now();
          check_others_ && now > asked + kFailurePoll) {
        asked = now;
        try {
          check_others_();
        } catch (...) {
          throw OthersFailed{std::current_exception()};
        }
      }
      return is_closing() || is_late();
    };
    for (LaneFiles& lane : collect_lanes(folder_, step, num_lanes_, give_up)) {
      manifest.lanes.push_back(std::move(lane));
    }
    if (std::ssize(manifest.lanes) != num_lanes_) {
      if (is_closing()) {
        return false;  // the run has failed elsewhere
      }
      throw SystemFailure(concat("not all of its ",
                                 num_lanes_,
                                 " lanes arrived within ",
                                 format_duration(deadline_),
                                 ": a rank may have ended"));
    }
  }
  commit_checkpoint(folder_, manifest, keep_);
  return true;
}

void CheckpointWriter::work() {
  run_in_background();
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(lock.native(),
                  [&]() ENTRAIN_REQUIRES(mutex_) { return closing_ || ready().has_value(); });
    const std::optional<std::int64_t> step = ready();
    if (!step.has_value()) {
      return;
    }
    auto snapshots = std::move(pending_.at(*step));
    pending_.erase(*step);
    std::ranges::sort(snapshots, {}, &LaneSnapshot::lane);
    writing_ = true;
    lock.unlock();
    std::exception_ptr error;
    bool written = false;
    try {
      written = write(*step, snapshots);
    } catch (const OthersFailed& failure) {
      error = failure.error;
    } catch (const std::exception& failure) {
      error = std::make_exception_ptr(
          SystemFailure(concat("checkpoint of step ",
                               *step,
                               " in '",
                               folder_.string(),
                               "': ",
                               failure.what(),
                               "; the run stops; earlier checkpoints are unchanged")));
    }
    if (error != nullptr) {
      std::error_code ignored;  // a failure here was reported above
      std::filesystem::remove_all(partial_path(folder_, *step), ignored);
    }
    snapshots.clear();
    lock.lock();
    writing_ = false;
    if (error != nullptr) {
      error_ = error;
      changed_.notify_all();
      return;
    }
    if (written) {
      last_written_ = folder_ / checkpoint_name(*step);
    }
    changed_.notify_all();
  }
}

}  // namespace entrain::engine
