#include "entrain/engine/train/rank_data.h"

#include <algorithm>
#include <iostream>
#include <string>
#include <thread>

#include "entrain/core/base/text.h"

#include "entrain/engine/data/read_ahead.h"
#include "entrain/engine/train/feed_run.h"

namespace entrain::engine {
namespace {

// Cores for each rank of this host, as far as they are of use.
int cores_of_a_rank(int hosted) {
  constexpr int kMostThreads = 8;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores / std::max(1, hosted), 1, kMostThreads);
}

ReadAheadOptions reader_options(const RunConfig& config, const LaneShare& share) {
  ReadAheadOptions options;
  options.threads = share.here * (config.data.decode_threads > 0 ? config.data.decode_threads
                                                                 : cores_of_a_rank(share.hosted));
  options.memory_bytes = config.data.read_ahead_mib << 20U;
  options.check_steps = config.faults.on_bad_sample == kSkipStep;
  return options;
}

std::shared_ptr<const FeedOptions> feed_of(const RunSetup& setup,
                                           const RankPlace& place,
                                           int rank,
                                           const LaneShare& share) {
  const auto note = [rank](const std::string& line) {
    std::cerr << concat("entrain: rank ", rank, ": ", line, "\n");
  };
  return feed_options(setup, place.replica, place.lane, rank, share.width / share.here, note);
}

ReadAheadOptions with_feed(ReadAheadOptions options, std::shared_ptr<const FeedOptions> feed) {
  options.feed = std::move(feed);
  return options;
}

}  // namespace

struct LaneReader {
  LaneReader(const RunSetup& setup,
             const ReadAheadOptions& given,
             std::shared_ptr<const FeedOptions> feed)
      : threads(given.threads),
        train(setup.train.index, setup.model, with_feed(given, std::move(feed))),
        validation(setup.validation.index, setup.model, given) {}

  int threads;
  ReadAhead train;
  ReadAhead validation;
};

std::shared_ptr<LaneReader> LaneReaders::get(const RunSetup& setup,
                                             const RankPlace& place,
                                             int rank,
                                             const LaneShare& share) {
  const MutexLock lock(mutex_);
  std::weak_ptr<LaneReader>& known = readers_[{place.replica, place.lane}];
  std::shared_ptr<LaneReader> reader = known.lock();
  if (reader == nullptr) {
    reader = std::make_shared<LaneReader>(
        setup, reader_options(setup.config, share), feed_of(setup, place, rank, share));
    known = reader;
  }
  return reader;
}

RankData::RankData(const RunSetup& setup,
                   const RankPlace& place,
                   int rank,
                   const LaneShare& share,
                   LaneReaders& lanes)
    : place_(place),
      text_positions_(!setup.model.llm.mrope_sections.empty()),
      readers_(share.here),
      lane_(setup.config.execution.paced ? nullptr : lanes.get(setup, place, rank, share)) {}

int RankData::num_threads() const {
  return lane_ == nullptr ? 0 : lane_->threads;
}

std::shared_ptr<StepData> RankData::of(const PreparedStep& prepared, const PreparedStep* next) {
  if (lane_ == nullptr) {
    return nullptr;
  }
  std::shared_ptr<StepData> data =
      queued_step_ == prepared.step ? std::move(queued_) : queue(prepared);
  queued_step_ = -1;
  if (next != nullptr) {
    queued_ = queue(*next);
    queued_step_ = next->step;
  }
  return data;
}

std::shared_ptr<StepData> RankData::validation(const PreparedStep& prepared) {
  return lane_->validation.queue(needs(prepared));
}

std::shared_ptr<StepData> RankData::queue(const PreparedStep& prepared) {
  StepNeeds step = needs(prepared);
  step.digest = prepared.digest;
  return lane_->train.queue(std::move(step));
}

StepNeeds RankData::needs(const PreparedStep& prepared) const {
  StepNeeds needs =
      needs_of(prepared.program, place_.replica, place_.lane, prepared.batch, text_positions_);
  needs.step = prepared.step;
  needs.readers = readers_;
  return needs;
}

}  // namespace entrain::engine
