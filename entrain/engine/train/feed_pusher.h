// One rank's side of a feed: decodes what it needs next and pushes it. Internal to feed_server.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include <zmq.hpp>

#include "entrain/core/base/thread_safety.h"

#include "entrain/engine/data/feed_messages.h"
#include "entrain/engine/data/read_ahead.h"
#include "entrain/engine/train/prepared_step.h"

namespace entrain::engine {

inline constexpr const char* kFeedOutbox = "inproc://outbox";  // where pushers send

// Steps of the run, each prepared once for all ranks.
class SharedSteps {
 public:
  // Requires  `setup` outlives it.
  explicit SharedSteps(const RunSetup& setup) : setup_(setup) {}

  // Throws  whatever prepare_step() throws.
  std::shared_ptr<const PreparedStep> get(std::int64_t step);

 private:
  const RunSetup& setup_;
  Mutex mutex_;
  std::map<std::int64_t, std::shared_future<std::shared_ptr<const PreparedStep>>> steps_
      ENTRAIN_GUARDED_BY(mutex_);
};

struct FeedSent {
  std::atomic<std::int64_t> pieces{0};
  std::atomic<std::int64_t> bytes{0};
  std::atomic<std::int64_t> step{-1};  // the highest
};

// What the threads of a server share.
struct FeedShared {
  const RunSetup& setup;
  zmq::context_t context;
  SharedSteps steps;
  ReadAhead reader;
  FeedSent sent;
};

// Sends as far as the rank's credit goes, on a thread of its own, to kFeedOutbox: the identity,
// then the message.
class FeedPusher {
 public:
  // `identity`: ZeroMQ's of the rank. Requires  `shared` outlives it.
  FeedPusher(FeedShared& shared, std::string identity, const FeedHello& hello);
  // Waits for the thread.
  ~FeedPusher();
  FeedPusher(const FeedPusher&) = delete;
  FeedPusher& operator=(const FeedPusher&) = delete;

  // The thread ends soon; has_ended() says when.
  void close();
  [[nodiscard]] bool has_ended() const;

  [[nodiscard]] const FeedHello& hello() const;
  // What the rank has used.
  void hear(const FeedCredit& credit);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace entrain::engine
