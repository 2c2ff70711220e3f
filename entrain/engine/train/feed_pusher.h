// One rank's side of a feed: decodes what it needs next and pushes it. Internal to feed_server.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include <zmq.hpp>

#include "entrain/engine/data/feed_messages.h"
#include "entrain/engine/data/read_ahead.h"
#include "entrain/engine/train/feed_steps.h"

namespace entrain::engine {

inline constexpr const char* kFeedOutbox = "inproc://outbox";  // where pushers send

struct FeedSent {
  std::atomic<std::int64_t> pieces{0};
  std::atomic<std::int64_t> bytes{0};
  std::atomic<std::int64_t> step{-1};  // the highest
};

// What the threads of a server share.
struct FeedShared {
  const RunSetup& setup;
  FeedSteps& steps;
  ReadAhead& reader;
  zmq::context_t context;
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
