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

class FedPieces;

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

class FeedClient {
 public:
  // `pieces`: where the client puts what it is sent, on its own thread. `credit`: bytes of pieces
  // that may wait there. Requires  `pieces` outlives the client.
  FeedClient(FeedOptions options, std::int64_t credit, FedPieces& pieces);
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
  FedPieces& pieces_;
  std::atomic<bool> stopping_{false};
  zmq::context_t context_;
  int sessions_ = 0;  // so far; the thread's
  bool live_;         // as `pieces_` knows; the thread's
  std::thread thread_;
};

}  // namespace entrain::engine
