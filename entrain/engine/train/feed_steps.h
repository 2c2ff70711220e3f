// What ranks read in the steps of a run, for those who decode it for them.
//
// Read first: FeedSteps. A feed prepares steps itself; a rank that decodes for the others of its
// lane gives what it has queued.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>

#include "entrain/core/base/thread_safety.h"

#include "entrain/engine/data/feed_messages.h"
#include "entrain/engine/data/step_needs.h"
#include "entrain/engine/train/prepared_step.h"

namespace entrain::engine {

class FeedSteps {
 public:
  virtual ~FeedSteps() = default;
  // The rank's needs of the first step known from `step` on. Nothing after the run's last one, or
  // if there is none yet; while `waits` holds, blocks for one instead. May be called by several
  // threads.
  virtual std::optional<StepNeeds> find(const FeedHello& rank,
                                        std::int64_t step,
                                        const std::function<bool()>& waits) = 0;
  // Lets those who block ask again whether they wait.
  virtual void wake() {}
};

// Each step prepared here, once for all ranks.
class PreparedSteps : public FeedSteps {
 public:
  // Requires  `setup` outlives it.
  explicit PreparedSteps(const RunSetup& setup) : setup_(setup) {}

  // Throws  whatever prepare_step() throws.
  std::optional<StepNeeds> find(const FeedHello& rank,
                                std::int64_t step,
                                const std::function<bool()>& waits) override;

 private:
  std::shared_ptr<const PreparedStep> prepared(std::int64_t step);

  const RunSetup& setup_;
  Mutex mutex_;
  std::map<std::int64_t, std::shared_future<std::shared_ptr<const PreparedStep>>> steps_
      ENTRAIN_GUARDED_BY(mutex_);
};

// The steps that a rank has queued, for the other ranks of its lane.
class QueuedSteps : public FeedSteps {
 public:
  // Steps come in rising order; only the last few are kept.
  void add(StepNeeds needs);
  std::optional<StepNeeds> find(const FeedHello& rank,
                                std::int64_t step,
                                const std::function<bool()>& waits) override;
  void wake() override;

 private:
  Mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, StepNeeds> steps_ ENTRAIN_GUARDED_BY(mutex_);
};

}  // namespace entrain::engine
