// Prepares steps ahead of the ranks: while step s runs, step s+1 is drawn, assigned and scheduled.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "entrain/engine/train/prepared_step.h"

namespace entrain::engine {

// One for all in-process ranks. What a step is depends on (setup, step) alone, so ranks in other
// processes would compute the same without asking anybody.
class StepSource {
 public:
  // Steps first … last-1. Requires `setup` outlives the source.
  StepSource(const RunSetup& setup, std::int64_t first, std::int64_t last, int num_ranks);
  ~StepSource();
  StepSource(const StepSource&) = delete;
  StepSource& operator=(const StepSource&) = delete;

  // The same object for every rank; null after the last step. Ranks ask for steps in rising order.
  // A step is dropped when all ranks have let go of it.
  //
  // Throws  whatever prepare_step threw.
  std::shared_ptr<const PreparedStep> get(std::int64_t step);
  // The step if it is ready, else null; for reading ahead.
  std::shared_ptr<const PreparedStep> peek(std::int64_t step);

 private:
  void work();

  const RunSetup& setup_;
  std::int64_t last_;
  int num_ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, std::shared_ptr<const PreparedStep>> ready_;
  std::map<std::int64_t, int> handed_out_;
  std::int64_t next_;        // to prepare
  std::int64_t asked_ = -1;  // highest step handed to a rank
  bool closing_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace entrain::engine
