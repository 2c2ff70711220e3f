#include "entrain/engine/train/step_source.h"

#include <algorithm>

#include "entrain/core/base/thread_priority.h"

namespace entrain::engine {
namespace {
constexpr std::int64_t kStepsAhead = 2;
}

StepSource::StepSource(const RunSetup& setup, std::int64_t first, std::int64_t last, int num_ranks)
    : setup_(setup), last_(last), num_ranks_(num_ranks), next_(first), asked_(first - 1) {
  thread_ = std::thread([this] { work(); });
}

StepSource::~StepSource() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::shared_ptr<const PreparedStep> StepSource::get(std::int64_t step) {
  MutexLock lock(mutex_);
  if (step >= last_) {
    return nullptr;
  }
  asked_ = std::max(asked_, step);
  changed_.notify_all();
  changed_.wait(lock.native(), [&]() ENTRAIN_REQUIRES(mutex_) {
    return ready_.contains(step) || error_ != nullptr;
  });
  const auto entry = ready_.find(step);
  if (entry == ready_.end()) {
    std::rethrow_exception(error_);
  }
  std::shared_ptr<const PreparedStep> prepared = entry->second;
  if (++handed_out_[step] == num_ranks_) {
    ready_.erase(entry);
    handed_out_.erase(step);
  }
  return prepared;
}

std::shared_ptr<const PreparedStep> StepSource::peek(std::int64_t step) {
  const MutexLock lock(mutex_);
  const auto entry = ready_.find(step);
  return entry == ready_.end() ? nullptr : entry->second;
}

void StepSource::work() {
  run_in_background();
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(lock.native(), [&]() ENTRAIN_REQUIRES(mutex_) {
      return closing_ || (next_ < last_ && next_ <= asked_ + kStepsAhead);
    });
    if (closing_) {
      return;
    }
    const std::int64_t step = next_;
    lock.unlock();
    std::shared_ptr<const PreparedStep> prepared;
    std::exception_ptr error;
    try {
      prepared = std::make_shared<const PreparedStep>(prepare_step(setup_, step));
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error != nullptr) {
      error_ = error;
      changed_.notify_all();
      return;
    }
    ready_[step] = std::move(prepared);
    ++next_;
    changed_.notify_all();
  }
}

}  // namespace entrain::engine
