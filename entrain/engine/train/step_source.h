// Prepares steps ahead of the ranks: while step s runs, step s+1 is drawn, assigned and scheduled.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <thread>

#include "entrain/core/base/thread_safety.h"

#include "entrain/engine/train/prepared_step.h"

namespace entrain::engine {

// Shared by all in-process ranks. A step depends only on (setup, step), so ranks in other
// processes compute the same step without communication.
class StepSource {
 public:
  // Steps first … last-1. Requires `setup` outlives the source.
  StepSource(const RunSetup& setup, std::int64_t first, std::int64_t last, int num_ranks);
  ~StepSource();
  StepSource(const StepSource&) = delete;
  StepSource& operator=(const StepSource&) = delete;

  // The same object for every rank; null after the last step. Ranks request steps in rising order.
  // A step is released once all ranks have released it.
  //
  // Throws  whatever prepare_step threw.
  std::shared_ptr<const PreparedStep> get(std::int64_t step);
  // The step if it is ready, else null; for reading ahead.
  std::shared_ptr<const PreparedStep> peek(std::int64_t step);

 private:
  void work();

  const RunSetup& setup_;
  const std::int64_t last_;
  const int num_ranks_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, std::shared_ptr<const PreparedStep>> ready_ ENTRAIN_GUARDED_BY(mutex_);
  std::map<std::int64_t, int> handed_out_ ENTRAIN_GUARDED_BY(mutex_);
  std::int64_t next_ ENTRAIN_GUARDED_BY(mutex_);   // to prepare
  std::int64_t asked_ ENTRAIN_GUARDED_BY(mutex_);  // highest step handed to a rank
  bool closing_ ENTRAIN_GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ ENTRAIN_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace entrain::engine
