// A rank's samples, read ahead of its steps.
//
// Read first: RankData.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "entrain/core/base/thread_safety.h"

#include "entrain/engine/data/step_data.h"
#include "entrain/engine/data/step_needs.h"
#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/train/prepared_step.h"

namespace entrain::engine {

struct LaneReader;

// Where the ranks of a lane are, each number >= 1.
struct LaneShare {
  int here = 1;    // in this process
  int width = 1;   // in all processes
  int hosted = 1;  // of all lanes, on this host: they share its cores
};

// The readers of this process, one for all ranks of a lane that are here.
class LaneReaders {
 public:
  // The reader's feed is told of the rank that comes first.
  std::shared_ptr<LaneReader> get(const RunSetup& setup,
                                  const RankPlace& place,
                                  int rank,
                                  const LaneShare& share);

 private:
  Mutex mutex_;
  std::map<std::pair<int, int>, std::weak_ptr<LaneReader>> readers_
      ENTRAIN_GUARDED_BY(mutex_);  // [replica, lane]
};

// What a rank reads, or nothing in a paced run. An image is decoded once for all ranks of a lane
// that share a process.
class RankData {
 public:
  // Requires  each rank of its lane in this process makes one of `lanes`.
  RankData(const RunSetup& setup,
           const RankPlace& place,
           int rank,
           const LaneShare& share,
           LaneReaders& lanes);

  // That decode for the rank and for those it shares them with; 0 in a paced run.
  [[nodiscard]] int num_threads() const;

  // The step's data, queued now unless it was queued during the previous step. `next`, if it is
  // known, is queued after it. Null in a paced run.
  std::shared_ptr<StepData> of(const PreparedStep& prepared, const PreparedStep* next);
  std::shared_ptr<StepData> validation(const PreparedStep& prepared);

 private:
  std::shared_ptr<StepData> queue(const PreparedStep& prepared);
  [[nodiscard]] StepNeeds needs(const PreparedStep& prepared) const;

  RankPlace place_;
  bool text_positions_;
  int readers_;                       // ranks of its lane that are here
  std::shared_ptr<LaneReader> lane_;  // null in a paced run
  std::shared_ptr<StepData> queued_;
  std::int64_t queued_step_ = -1;
};

}  // namespace entrain::engine
