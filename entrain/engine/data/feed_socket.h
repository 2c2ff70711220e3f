// Addresses, keys and sockets of a feed (feed_messages.h), over ZeroMQ: it frames, bounds, queues
// and reconnects, and its CURVE mechanism authenticates both sides and encrypts what they send.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <zmq.hpp>

namespace entrain::engine {

// Secrets that a feed and its ranks share, each a CURVE key of 40 characters (Z85). Who has the
// file may ask the feed for samples and may pretend to be it.
struct FeedKey {
  std::string feed_secret;
  std::string rank_secret;
  std::string feed_public;
  std::string rank_public;
};

FeedKey new_feed_key();
// A file of two secrets, as text_of() writes it.
//
// Throws  InvalidInput naming the path: others than its owner may read it, or it is no key.
FeedKey read_feed_key(const std::filesystem::path& path);
std::string text_of(const FeedKey& key);

// Where a feed listens or is reached: HOST:PORT (`[::1]:7000` with IPv6), :PORT for every
// interface, or ipc:///PATH for a socket of this host.
struct FeedAddress {
  std::string text;      // as given
  std::string endpoint;  // as ZeroMQ writes it
  bool local = false;    // reached from this host alone
  bool ipv6 = false;
};
// Throws  InvalidInput naming `where` and the forms there are. Without `listens` a host is
// required.
FeedAddress read_feed_address(const std::string& text, const std::string& where, bool listens);

// A socket of the rank's side, not yet connected to the address's endpoint. `key` may be null.
zmq::socket_t socket_to_feed(zmq::context_t& context,
                             const FeedAddress& address,
                             const FeedKey* key);
// A socket of the feed's side. A key requires an AuthenticatedRanks on the same context, made
// before.
//
// Throws  SystemFailure when the address is taken or is not one of this host.
zmq::socket_t listen_for_ranks(zmq::context_t& context,
                               const FeedAddress& address,
                               const FeedKey* key);

// Answers ZeroMQ's question whether a connection's key is the ranks' (RFC 27, ZAP).
class AuthenticatedRanks {
 public:
  AuthenticatedRanks(zmq::context_t& context, const FeedKey& key);
  zmq::socket_ref socket() { return socket_; }
  // One question that waits at socket().
  void answer();

 private:
  zmq::socket_t socket_;
  std::string allowed_;  // the ranks' public key, 32 bytes
};

// Waits until something can be read, a signal comes, or the time is over.
void wait_for_messages(std::vector<zmq::pollitem_t>& items, std::chrono::milliseconds time);

// A frame that owns `bytes`, without a copy of them.
zmq::message_t frame_of(std::string bytes);

}  // namespace entrain::engine
