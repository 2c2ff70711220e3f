#include "entrain/engine/train/feed_steps.h"

#include <iterator>
#include <utility>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/train/feed_run.h"

namespace entrain::engine {
namespace {

constexpr std::size_t kPreparedKept = 16;  // for ranks that are not at the same step
constexpr std::size_t kQueuedKept = 4;     // the ranks of a lane are at most one step apart

}  // namespace

std::optional<StepNeeds> PreparedSteps::find(const FeedHello& rank,
                                             std::int64_t step,
                                             const std::function<bool()>& /*waits*/) {
  if (step >= steps_of(rank.run)) {
    return std::nullopt;
  }
  const std::shared_ptr<const PreparedStep> known = prepared(step);
  StepNeeds needs = needs_of(known->program,
                             rank.replica,
                             rank.lane,
                             known->batch,
                             !setup_.model.llm.mrope_sections.empty());
  needs.step = step;
  needs.digest = known->digest;
  needs.readers = rank.readers;
  return needs;
}

// The first to ask prepares the step, others wait for it.
std::shared_ptr<const PreparedStep> PreparedSteps::prepared(std::int64_t step) {
  std::shared_future<std::shared_ptr<const PreparedStep>> known;
  {
    const MutexLock lock(mutex_);
    const auto [entry, is_new] = steps_.try_emplace(step);
    if (is_new) {
      entry->second = std::async(std::launch::deferred, [this, step] {
        return std::make_shared<const PreparedStep>(prepare_step(setup_, step));
      });
    }
    known = entry->second;
    if (steps_.size() > kPreparedKept) {
      steps_.erase(steps_.begin()->first == step ? std::next(steps_.begin()) : steps_.begin());
    }
  }
  return known.get();
}

void QueuedSteps::add(StepNeeds needs) {
  const MutexLock lock(mutex_);
  const std::int64_t step = needs.step;
  steps_.insert_or_assign(step, std::move(needs));
  if (steps_.size() > kQueuedKept) {
    steps_.erase(steps_.begin());
  }
  changed_.notify_all();
}

std::optional<StepNeeds> QueuedSteps::find(const FeedHello& rank,
                                           std::int64_t step,
                                           const std::function<bool()>& waits) {
  MutexLock lock(mutex_);
  const auto found = [&]() ENTRAIN_REQUIRES(mutex_) { return steps_.lower_bound(step); };
  changed_.wait(lock.native(),
                [&]() ENTRAIN_REQUIRES(mutex_) { return found() != steps_.end() || !waits(); });
  if (found() == steps_.end()) {
    return std::nullopt;
  }
  const StepNeeds& needs = found()->second;
  ENTRAIN_INVARIANT(needs.readers == rank.readers,  // else it would be decoded twice
                    concat(needs.readers, " and ", rank.readers, " ranks share a decode"));
  return needs;
}

void QueuedSteps::wake() {
  const MutexLock lock(mutex_);
  changed_.notify_all();
}

}  // namespace entrain::engine
