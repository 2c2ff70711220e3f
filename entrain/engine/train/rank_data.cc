#include "entrain/engine/train/rank_data.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/data/read_ahead.h"
#include "entrain/engine/train/feed_run.h"
#include "entrain/engine/train/lane_feed.h"

namespace entrain::engine {
namespace {

// Cores for each rank of this host, as far as they are of use.
int cores_of_a_rank(int hosted) {
  constexpr int kMostThreads = 8;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores / std::max(1, hosted), 1, kMostThreads);
}

// Ranks of other processes for which this one decodes, too.
int fed_ranks(const LaneShare& share, int rank) {
  const bool feeds = !share.sharing.empty() && share.sharing.front() == rank;
  return feeds ? static_cast<int>(share.sharing.size()) - 1 : 0;
}

ReadAheadOptions reader_options(const RunConfig& config, const LaneShare& share, int rank) {
  ReadAheadOptions options;
  options.threads =
      (share.here + fed_ranks(share, rank)) *
      (config.data.decode_threads > 0 ? config.data.decode_threads : cores_of_a_rank(share.hosted));
  options.memory_bytes = config.data.read_ahead_mib << 20U;
  options.check_steps = config.faults.on_bad_sample == kSkipStep;
  return options;
}

void note(int rank, const std::string& line) {
  std::cerr << concat("entrain: rank ", rank, ": ", line, "\n");
}

std::function<void(const std::string&)> notes_of(int rank) {
  return [rank](const std::string& line) { note(rank, line); };
}

ReadAheadOptions with_feed(ReadAheadOptions options, std::shared_ptr<const FeedOptions> feed) {
  options.feed = std::move(feed);
  return options;
}

// The first rank's text, at most 255 bytes, at every rank of the group.
std::string tell(std::string text, const std::vector<int>& group, Comm& comm) {
  constexpr std::int64_t kBytes = 256;
  at::Tensor bytes = at::zeros({kBytes}, at::kByte);
  text.copy(static_cast<char*>(bytes.data_ptr()), kBytes - 1);
  comm.broadcast(bytes, group.front(), group);
  return static_cast<const char*>(bytes.data_ptr());
}

}  // namespace

struct LaneReader {
  LaneReader(const RunSetup& setup,
             const ReadAheadOptions& given,
             std::shared_ptr<const FeedOptions> feed_options)
      : threads(given.threads),
        train(setup.train.index, setup.model, with_feed(given, std::move(feed_options))),
        validation(setup.validation.index, setup.model, given) {}

  int threads;
  ReadAhead train;
  ReadAhead validation;
  int readers = 1;                     // ranks for which `train` decodes
  std::optional<LaneFeed> feed;        // to other ranks
  std::optional<SocketFolder> folder;  // of the rank that feeds this one
};

namespace {

// The reader of one rank of several processes that share one decode.
std::shared_ptr<LaneReader> sharing_reader(const RunSetup& setup,
                                           const RankPlace& place,
                                           const LaneShare& share,
                                           Comm& comm) {
  const int rank = comm.rank();
  const ReadAheadOptions options = reader_options(setup.config, share, rank);
  if (const int fed = fed_ranks(share, rank); fed > 0) {
    auto reader = std::make_shared<LaneReader>(setup, options, nullptr);
    try {
      reader->feed.emplace(setup, reader->train);
      reader->readers += fed;
    } catch (const SystemFailure& error) {
      note(rank, concat("other ranks of the lane decode for themselves: ", error.what()));
    }
    tell(reader->feed.has_value() ? reader->feed->folder().string() : "", share.sharing, comm);
    return reader;
  }
  const std::string folder = tell("", share.sharing, comm);
  if (folder.empty()) {
    return std::make_shared<LaneReader>(setup, options, nullptr);
  }
  auto feed = std::make_shared<FeedOptions>(unfed_options(setup,
                                                          place.replica,
                                                          place.lane,
                                                          rank,
                                                          static_cast<int>(share.sharing.size()),
                                                          notes_of(rank)));
  feed->addresses = {lane_feed_address(folder, concat("rank ", share.sharing.front()))};
  feed->expected = true;
  auto reader = std::make_shared<LaneReader>(setup, options, std::move(feed));
  reader->folder.emplace(folder);
  return reader;
}

}  // namespace

std::shared_ptr<LaneReader> LaneReaders::get(const RunSetup& setup,
                                             const RankPlace& place,
                                             const LaneShare& share,
                                             Comm& comm) {
  const MutexLock lock(mutex_);
  std::weak_ptr<LaneReader>& known = readers_[{place.replica, place.lane}];
  std::shared_ptr<LaneReader> reader = known.lock();
  if (reader != nullptr) {
    return reader;
  }
  if (!share.sharing.empty()) {
    reader = sharing_reader(setup, place, share, comm);
    if (reader->feed.has_value()) {
      feeding_.push_back(reader);
    }
  } else {
    const int rank = comm.rank();
    reader = std::make_shared<LaneReader>(
        setup,
        reader_options(setup.config, share, rank),
        feed_options(
            setup, place.replica, place.lane, rank, share.width / share.here, notes_of(rank)));
    reader->readers = share.here;
  }
  known = reader;
  return reader;
}

RankData::RankData(const RunSetup& setup,
                   const RankPlace& place,
                   const LaneShare& share,
                   LaneReaders& lanes,
                   Comm& comm)
    : place_(place),
      text_positions_(!setup.model.llm.mrope_sections.empty()),
      readers_(share.here),
      lane_(setup.config.execution.paced ? nullptr : lanes.get(setup, place, share, comm)) {}

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

DataTimes RankData::times(StepData& data) const {
  DataTimes times = data.times();
  if (lane_->folder.has_value()) {  // its feed is a rank of the lane
    times.shared = std::exchange(times.fed, 0);
  }
  return times;
}

std::shared_ptr<StepData> RankData::validation(const PreparedStep& prepared) {
  return lane_->validation.queue(needs(prepared, readers_));
}

std::shared_ptr<StepData> RankData::queue(const PreparedStep& prepared) {
  StepNeeds step = needs(prepared, lane_->readers);
  step.digest = prepared.digest;
  if (!lane_->feed.has_value()) {
    return lane_->train.queue(std::move(step));
  }
  std::shared_ptr<StepData> data = lane_->train.queue(step);
  lane_->feed->add(std::move(step));
  return data;
}

StepNeeds RankData::needs(const PreparedStep& prepared, int readers) const {
  StepNeeds needs =
      needs_of(prepared.program, place_.replica, place_.lane, prepared.batch, text_positions_);
  needs.step = prepared.step;
  needs.readers = readers;
  return needs;
}

}  // namespace entrain::engine
