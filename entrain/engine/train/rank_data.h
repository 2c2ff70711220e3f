// A rank's samples, read ahead of its steps.
//
// Read first: RankData.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "entrain/core/base/thread_safety.h"

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/data/step_data.h"
#include "entrain/engine/data/step_needs.h"
#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/train/prepared_step.h"

namespace entrain::engine {

struct LaneReader;
struct LaneStream;
class UnfedRanks;

// Where the ranks of a lane are, each number >= 1.
struct LaneShare {
  int here = 1;    // in this process
  int width = 1;   // in all processes
  int hosted = 1;  // of all lanes, on this host: they share its cores
  // Ranks of the lane that are processes of this host and share one decode (lane_feed.h), in rising
  // order, this one among them; none: it decodes for itself.
  std::vector<int> sharing;
};

// The readers of this process, one for all ranks of a lane that are here.
class LaneReaders {
 public:
  // The reader's feed is told of the rank that comes first. All ranks of `share.sharing` call it
  // together.
  std::shared_ptr<LaneReader> get(const RunSetup& setup,
                                  const RankPlace& place,
                                  const LaneShare& share,
                                  Comm& comm);

 private:
  Mutex mutex_;
  std::map<std::pair<int, int>, std::weak_ptr<LaneReader>> readers_
      ENTRAIN_GUARDED_BY(mutex_);  // [replica, lane]
  std::shared_ptr<UnfedRanks> unfed_ ENTRAIN_GUARDED_BY(mutex_);
  // Those that feed other ranks, until all of these have ended.
  std::vector<std::shared_ptr<LaneReader>> feeding_ ENTRAIN_GUARDED_BY(mutex_);
};

// What a rank reads, or nothing in a paced run. An image is decoded once for all ranks of a lane
// that share a process, or a host as LaneShare says.
class RankData {
 public:
  // Requires  each rank of its lane in this process makes one of `lanes`.
  RankData(const RunSetup& setup,
           const RankPlace& place,
           const LaneShare& share,
           LaneReaders& lanes,
           Comm& comm);

  // That decode for the rank and for those it shares them with; 0 in a paced run.
  [[nodiscard]] int num_threads() const;

  // The step's data, queued now unless it was queued during the previous step. `next`, if it is
  // known, is queued after it. Null in a paced run.
  std::shared_ptr<StepData> of(const PreparedStep& prepared, const PreparedStep* next);
  // Of a training step's data up to now.
  DataTimes times(StepData& data) const;
  // As of(), of a validation's steps, which come round again in the same order each time.
  std::shared_ptr<StepData> validation(const PreparedStep& prepared, const PreparedStep* next);

 private:
  struct Ahead {
    std::int64_t step = -1;  // PreparedStep::step; -1: none
    std::shared_ptr<StepData> data;
  };

  // `number`: rises from one step of the stream to the next.
  std::shared_ptr<StepData> take(LaneStream& stream,
                                 Ahead& ahead,
                                 const PreparedStep& prepared,
                                 const PreparedStep* next,
                                 std::int64_t number) const;
  [[nodiscard]] StepNeeds needs(const PreparedStep& prepared, std::int64_t number) const;

  RankPlace place_;
  bool text_positions_;
  std::shared_ptr<LaneReader> lane_;  // null in a paced run
  Ahead training_;
  Ahead validating_;
  std::int64_t validated_ = 0;  // steps of all validations so far
};

}  // namespace entrain::engine
