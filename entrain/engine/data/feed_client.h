// A rank's side of a feed: asks one of several feeds for the pieces of its steps, and changes to
// another, or to none, when one is lost.
//
// Read first: FeedClient. What it changes is who decodes, never what is decoded: every piece
// can be decoded here at any time, and the first of both is taken.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "entrain/engine/data/feed_messages.h"
#include "entrain/engine/data/feed_socket.h"

namespace entrain::engine {

struct FeedOptions {
  std::vector<FeedAddress> addresses;  // none: no feed
  std::optional<FeedKey> key;          // required unless all addresses are of this host
  // A feed that is silent for that long is lost, > 0. Half of it is waited for a piece.
  std::chrono::milliseconds deadline{2000};
  FeedRun run;
  int replica = 0;
  int lane = 0;
  int readers = 1;  // ranks of the lane that are fed on their own
  int rank = 0;     // ranks begin with different addresses
  // It is known to listen, so nothing is decoded here until it is silent for the deadline.
  bool expected = false;
  // A line for people: which feed serves, is lost, or refuses. Called on the client's thread.
  std::function<void(const std::string& line)> note;
  // Such a line at the begin of a time in which no feed answers; unset: `note`.
  std::function<void(const std::string& line)> unanswered;
};

// Where the client puts what it is sent. Called on its thread.
class FeedSink {
 public:
  virtual ~FeedSink() = default;
  // The first piece that is not here yet; nothing before the first step is known.
  virtual std::optional<FeedPosition> position() = 0;
  // A feed serves from now on, or none does: everything not here yet is to be decoded here, and
  // pieces of steps not yet known are dropped. Before the first call none does, unless one is
  // expected.
  virtual void live(bool is_live) = 0;
  // Its credit_of() is released() when the piece is used or dropped.
  //
  // Throws  InvalidInput: nothing that a feed of this run would send.
  virtual void take(FedPiece piece) = 0;
  virtual void take(const FedStep& step) = 0;
  // Bytes taken and not released; and released since the beginning.
  virtual std::int64_t held() = 0;
  virtual std::int64_t released() = 0;
  // Why the feed must not serve any longer: the first step whose digest differs. Asked once each.
  virtual std::optional<std::string> objection() = 0;
};

class FeedClient {
 public:
  // `credit`: bytes of pieces that may wait here. Requires  `sink` outlives the client.
  FeedClient(FeedOptions options, std::int64_t credit, FeedSink& sink);
  // Says goodbye.
  ~FeedClient();
  FeedClient(const FeedClient&) = delete;
  FeedClient& operator=(const FeedClient&) = delete;

 private:
  enum class End : std::uint8_t { kStopped, kLost, kRefused };
  class Session;

  void run();
  static std::string addresses(const std::vector<const FeedAddress*>& feeds);
  void note(const std::string& line) const;
  void live(bool is_live);
  // Sleeps, but not past the client's end.
  void rest(std::chrono::milliseconds time) const;

  FeedOptions options_;
  std::int64_t credit_;
  FeedSink& sink_;
  std::atomic<bool> stopping_{false};
  zmq::context_t context_;
  int sessions_ = 0;  // so far; the thread's
  bool live_;         // as the sink knows; the thread's
  std::thread thread_;
};

}  // namespace entrain::engine
