#include "entrain/engine/train/feed_pusher.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "entrain/core/base/errors.h"

#include "entrain/engine/data/feed_socket.h"
#include "entrain/engine/data/packed_pixels.h"

namespace entrain::engine {
namespace {

constexpr std::size_t kStepsAhead = 2;  // decoded for one rank at a time

}  // namespace

struct FeedPusher::State {
  State(FeedShared& shared, std::string identity, const FeedHello& hello)
      : shared_(shared), identity_(std::move(identity)), hello_(hello), from_(hello.from) {
    thread_ = std::thread([this] { run(); });
  }
  ~State() {
    close();
    thread_.join();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void close() {
    {
      const MutexLock lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    shared_.steps.wake();
  }
  void hear(const FeedCredit& credit) {
    const MutexLock lock(mutex_);
    from_ = std::max(from_, credit.from);
    released_ = std::max(released_, credit.released);
    changed_.notify_all();
  }

  struct QueuedStep {
    StepNeeds needs;
    std::shared_ptr<StepData> data;
  };

  void run() {
    zmq::socket_t outbox(shared_.context, zmq::socket_type::push);
    outbox.set(zmq::sockopt::sndhwm, 0);
    outbox.set(zmq::sockopt::linger, 0);
    outbox.connect(kFeedOutbox);
    outbox_ = &outbox;
    try {
      push_steps();
    } catch (const std::exception& error) {
      send(message_of(FeedRefusal{error.what()}));
    }
    outbox_ = nullptr;
    ended_ = true;
  }

  void push_steps() {
    std::deque<QueuedStep> queued;
    QueuedStep last;  // kept, since another rank of the lane may just not have come to it
    std::int64_t next = hello_.from.step;
    while (!is_closing()) {
      while (queued.size() < kStepsAhead) {
        const bool waits = queued.empty();
        auto needs = shared_.steps.find(hello_, next, [&] { return waits && !is_closing(); });
        if (!needs.has_value()) {
          break;
        }
        next = needs->step + 1;
        auto data = shared_.reader.queue(*needs);
        queued.push_back({std::move(*needs), std::move(data)});
      }
      if (queued.empty()) {
        return;
      }
      if (is_over(queued.front().needs.step)) {
        queued.pop_front();
        next = std::max(next, from().step);
        continue;
      }
      push(queued.front());
      last = std::move(queued.front());
      queued.pop_front();
    }
  }

  void push(const QueuedStep& step) {
    const std::int64_t number = step.needs.step;
    if (shared_.setup.config.faults.on_bad_sample == kSkipStep) {
      const bool sound = !step.data->problem().has_value();
      send(message_of(FedStep{number, step.needs.digest, sound}));
    }
    FedPiece piece;
    piece.position.step = number;
    piece.digest = step.needs.digest;
    for (const int sample : step.needs.texts) {
      if (!push(piece, -1, [&] {
            return SampleTokens{step.data->text(sample), step.data->kind(sample)};
          })) {
        return;
      }
    }
    for (const SegmentNeed& need : step.needs.segments) {
      if (!push(piece, need.module, [&] {
            return step.data->segment(need.module, need.sample, need.segment);
          })) {
        return;
      }
    }
    std::int64_t highest = shared_.sent.step;
    while (highest < number && !shared_.sent.step.compare_exchange_weak(highest, number)) {
    }
  }

  // Sends the piece unless it is of no use, and moves on to the next. Whether the step goes on.
  // `module`: of a segment; -1: a text.
  template <typename Decode>
  bool push(FedPiece& piece, int module, const Decode& decode) {
    if (is_closing() || is_over(piece.position.step)) {
      return false;
    }
    if (piece.position >= from()) {
      piece.content = decoded(decode);
      const std::int64_t credit = credit_of(piece);
      pack(piece, module);
      std::string message = message_of(FromFeed(piece));
      if (!wait_for_credit(credit)) {
        return false;
      }
      ++shared_.sent.pieces;
      shared_.sent.bytes += static_cast<std::int64_t>(message.size());
      send(std::move(message));
    }
    ++piece.position.piece;
    return true;
  }

  // Pixels as bytes, where they are.
  void pack(FedPiece& piece, int module) const {
    const ModelSpec& model = shared_.setup.model;
    const auto* segment = std::get_if<SegmentData>(&piece.content);
    if (segment == nullptr ||
        model.encoders[static_cast<std::size_t>(module)].modality != Modality::kVision) {
      return;
    }
    if (std::optional<PackedPixels> pixels = packed(*segment, model, module); pixels.has_value()) {
      piece.content = *std::move(pixels);
    }
  }

  template <typename Decode>
  static auto decoded(const Decode& decode) -> decltype(FedPiece::content) {
    try {
      return decode();
    } catch (const InvalidInput&) {
      return Undecoded();
    } catch (const SystemFailure&) {
      return Undecoded();
    }
  }

  void send(std::string message) {
    outbox_->send(zmq::buffer(identity_), zmq::send_flags::sndmore);
    outbox_->send(frame_of(std::move(message)), zmq::send_flags::none);
  }

  bool wait_for_credit(std::int64_t bytes) {
    MutexLock lock(mutex_);
    changed_.wait(lock.native(), [&]() ENTRAIN_REQUIRES(mutex_) {
      const std::int64_t under_way = pushed_ - released_;
      return closing_ || under_way <= 0 || under_way + bytes <= hello_.credit;
    });
    pushed_ += bytes;
    return !closing_;
  }
  bool is_closing() {
    const MutexLock lock(mutex_);
    return closing_;
  }
  FeedPosition from() {
    const MutexLock lock(mutex_);
    return from_;
  }
  bool is_over(std::int64_t step) { return from().step > step; }

  FeedShared& shared_;
  std::string identity_;
  FeedHello hello_;
  zmq::socket_t* outbox_ = nullptr;  // this thread's, while it runs
  Mutex mutex_;
  std::condition_variable changed_;
  FeedPosition from_ ENTRAIN_GUARDED_BY(mutex_);
  std::int64_t released_ ENTRAIN_GUARDED_BY(mutex_) = 0;  // bytes since the hello
  std::int64_t pushed_ ENTRAIN_GUARDED_BY(mutex_) = 0;    // the same
  bool closing_ ENTRAIN_GUARDED_BY(mutex_) = false;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

FeedPusher::FeedPusher(FeedShared& shared, std::string identity, const FeedHello& hello)
    : state_(std::make_unique<State>(shared, std::move(identity), hello)) {}
FeedPusher::~FeedPusher() = default;

void FeedPusher::close() {
  state_->close();
}
bool FeedPusher::has_ended() const {
  return state_->ended_;
}
const FeedHello& FeedPusher::hello() const {
  return state_->hello_;
}
void FeedPusher::hear(const FeedCredit& credit) {
  state_->hear(credit);
}

}  // namespace entrain::engine
