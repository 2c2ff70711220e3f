#include "entrain/engine/train/rank_data.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <optional>
#include <set>
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

// Of one that decodes for `ranks` of the `hosted` ones.
ReadAheadOptions reader_options(const RunConfig& config, int ranks, int hosted) {
  ReadAheadOptions options;
  options.threads = ranks * (config.data.decode_threads > 0 ? config.data.decode_threads
                                                            : cores_of_a_rank(hosted));
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

// The first rank's text, at most 255 bytes, at every rank of the group.
std::string tell(std::string text, const std::vector<int>& group, Comm& comm) {
  constexpr std::int64_t kBytes = 256;
  at::Tensor bytes = at::zeros({kBytes}, at::kByte);
  text.copy(static_cast<char*>(bytes.data_ptr()), kBytes - 1);
  comm.broadcast(bytes, group.front(), group);
  return static_cast<const char*>(bytes.data_ptr());
}

}  // namespace

// The ranks of a process that no feed answers: the first of them speaks for all.
class UnfedRanks {
 public:
  void say(int rank, const std::string& line) {
    const MutexLock lock(mutex_);
    if (!ranks_.insert(rank).second) {
      ranks_ = {rank};  // it was fed meanwhile
    }
    if (ranks_.size() == 1) {
      note(rank, concat(line, " (One line for all ranks of this process.)"));
    }
  }

 private:
  Mutex mutex_;
  std::set<int> ranks_ ENTRAIN_GUARDED_BY(mutex_);
};

// Steps of one kind, decoded for one lane.
struct LaneStream {
  LaneStream(const DataSet& data, const ModelSpec& model, const ReadAheadOptions& options)
      : threads(options.threads), reader(data.index, model, options) {}

  std::shared_ptr<StepData> queue(StepNeeds needs) {
    needs.readers = readers;
    if (!feed.has_value()) {
      return reader.queue(std::move(needs));
    }
    std::shared_ptr<StepData> data = reader.queue(needs);
    feed->add(std::move(needs));
    return data;
  }

  int threads;
  ReadAhead reader;
  int readers = 1;                     // ranks for which it decodes
  std::optional<LaneFeed> feed;        // to other ranks
  std::optional<SocketFolder> folder;  // of the rank that feeds this one
};

struct LaneReader {
  std::unique_ptr<LaneStream> train;
  std::unique_ptr<LaneStream> validation;
};

namespace {

// A stream of one rank of several processes that share one decode.
std::unique_ptr<LaneStream> shared_stream(const RunSetup& setup,
                                          const DataSet& data,
                                          const RankPlace& place,
                                          const LaneShare& share,
                                          Comm& comm) {
  const int rank = comm.rank();
  const int fed = fed_ranks(share, rank);
  ReadAheadOptions options = reader_options(setup.config, 1 + fed, share.hosted);
  if (fed > 0) {
    auto stream = std::make_unique<LaneStream>(data, setup.model, options);
    try {
      stream->feed.emplace(setup, stream->reader);
      stream->readers += fed;
    } catch (const SystemFailure& error) {
      note(rank, concat("other ranks of the lane decode for themselves: ", error.what()));
    }
    tell(stream->feed.has_value() ? stream->feed->folder().string() : "", share.sharing, comm);
    return stream;
  }
  const std::string folder = tell("", share.sharing, comm);
  if (folder.empty()) {
    return std::make_unique<LaneStream>(data, setup.model, options);
  }
  auto feed = std::make_shared<FeedOptions>(unfed_options(setup,
                                                          place.replica,
                                                          place.lane,
                                                          rank,
                                                          static_cast<int>(share.sharing.size()),
                                                          notes_of(rank)));
  feed->addresses = {lane_feed_address(folder, concat("rank ", share.sharing.front()))};
  feed->expected = true;
  options.feed = std::move(feed);
  auto stream = std::make_unique<LaneStream>(data, setup.model, options);
  stream->folder.emplace(folder);
  return stream;
}

// A stream of the ranks of a lane that are here.
std::unique_ptr<LaneStream> own_stream(const RunSetup& setup,
                                       const DataSet& data,
                                       const LaneShare& share,
                                       std::shared_ptr<const FeedOptions> feed) {
  ReadAheadOptions options = reader_options(setup.config, share.here, share.hosted);
  options.feed = std::move(feed);
  auto stream = std::make_unique<LaneStream>(data, setup.model, options);
  stream->readers = share.here;
  return stream;
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
  const int rank = comm.rank();
  const bool shares = !share.sharing.empty();
  std::shared_ptr<FeedOptions> feed;  // serves the steps of training
  if (const DataConfig& config = setup.config.data; !config.feed.empty()) {
    feed = std::make_shared<FeedOptions>(unfed_options(
        setup, place.replica, place.lane, rank, share.width / share.here, notes_of(rank)));
    add_feeds(config, *feed);
    unfed_ = unfed_ == nullptr ? std::make_shared<UnfedRanks>() : unfed_;
    feed->unanswered = [unfed = unfed_, rank](const std::string& line) { unfed->say(rank, line); };
  }
  reader = std::make_shared<LaneReader>();
  reader->train = shares && feed == nullptr
                      ? shared_stream(setup, setup.train, place, share, comm)
                      : own_stream(setup, setup.train, share, std::move(feed));
  reader->validation = shares && !setup.validation.index.samples.empty()
                           ? shared_stream(setup, setup.validation, place, share, comm)
                           : own_stream(setup, setup.validation, share, nullptr);
  if (reader->train->feed.has_value() || reader->validation->feed.has_value()) {
    feeding_.push_back(reader);
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
      lane_(setup.config.execution.paced ? nullptr : lanes.get(setup, place, share, comm)) {}

int RankData::num_threads() const {
  return lane_ == nullptr ? 0 : lane_->train->threads;
}

std::shared_ptr<StepData> RankData::of(const PreparedStep& prepared, const PreparedStep* next) {
  return lane_ == nullptr ? nullptr : take(*lane_->train, training_, prepared, next, prepared.step);
}

DataTimes RankData::times(StepData& data) const {
  DataTimes times = data.times();
  if (lane_->train->folder.has_value()) {  // its feed is a rank of the lane
    times.shared = std::exchange(times.fed, 0);
  }
  return times;
}

std::shared_ptr<StepData> RankData::validation(const PreparedStep& prepared,
                                               const PreparedStep* next) {
  return take(*lane_->validation, validating_, prepared, next, validated_++);
}

std::shared_ptr<StepData> RankData::take(LaneStream& stream,
                                         Ahead& ahead,
                                         const PreparedStep& prepared,
                                         const PreparedStep* next,
                                         std::int64_t number) const {
  std::shared_ptr<StepData> data =
      ahead.step == prepared.step ? std::move(ahead.data) : stream.queue(needs(prepared, number));
  ahead = {};
  if (next != nullptr) {
    ahead = {next->step, stream.queue(needs(*next, number + 1))};
  }
  return data;
}

StepNeeds RankData::needs(const PreparedStep& prepared, std::int64_t number) const {
  StepNeeds needs =
      needs_of(prepared.program, place_.replica, place_.lane, prepared.batch, text_positions_);
  needs.step = number;
  needs.digest = prepared.digest;
  return needs;
}

}  // namespace entrain::engine
