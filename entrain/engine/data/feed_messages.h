// What a rank that trains and a feed that decodes for it say to each other.
//
// A rank says hello with the run it belongs to, its place, where it is, and its credit in bytes.
// The feed then pushes the pieces of the rank's steps in the order of use, each with the digest of
// its step, as far as the credit goes. What the rank has used is credit again. Read first: ToFeed
// and FromFeed.
//
// A message is one ZeroMQ frame: a byte that says which it is, then its fields in the order of
// their declaration, numbers as in memory (little endian), texts with their length in front.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "entrain/engine/data/packed_pixels.h"
#include "entrain/engine/data/step_data.h"

namespace entrain::engine {

inline constexpr std::int64_t kMostHelloBytes = 1 << 16;                 // of a message to a feed
inline constexpr std::int64_t kMostPieceBytes = std::int64_t{1} << 30U;  // of one from it

// A piece of a rank's steps: the steps are counted as the run counts them, the pieces of a step in
// the order of StepNeeds, texts first.
struct FeedPosition {
  std::int64_t step = 0;
  std::int64_t piece = 0;
  std::strong_ordering operator<=>(const FeedPosition&) const = default;
};

// What makes the pieces of two programs equal, each as a digest or version.
struct FeedRun {
  std::string version;
  std::string model;
  std::string index;
  std::string plan;
  std::string data;  // seed and settings that decide which samples a step has, as JSON
  bool operator==(const FeedRun&) const = default;
};

struct FeedHello {
  FeedRun run;
  int replica = 0;
  int lane = 0;
  int readers = 1;          // ranks of the lane that each say hello, >= 1
  FeedPosition from;        // the first piece to send
  std::int64_t credit = 0;  // bytes of pieces that may be under way, >= 0
};
struct FeedCredit {
  FeedPosition from;          // pieces before it are of no use any more
  std::int64_t released = 0;  // bytes of pieces used or dropped since the hello
};
struct FeedGoodbye {};  // from either side
using ToFeed = std::variant<FeedHello, FeedCredit, FeedGoodbye>;

struct FeedWelcome {};
struct FeedRefusal {
  std::string why;
};
struct FeedAlive {};    // nothing to send at the moment
struct FeedUnknown {};  // the feed has had no hello: it was started again
// Every piece of the step could be decoded, or not all could.
struct FedStep {
  std::int64_t step = 0;
  std::string digest;
  bool sound = false;
};
struct Undecoded {};  // decoding here says why
struct FedPiece {
  FeedPosition position;
  std::string digest;  // of its step
  std::variant<Undecoded, SegmentData, SampleTokens, PackedPixels> content;
};
// What a piece counts of a rank's credit: about the memory that it takes there.
std::int64_t credit_of(const FedPiece& piece);
using FromFeed =
    std::variant<FeedWelcome, FeedRefusal, FeedAlive, FeedUnknown, FeedGoodbye, FedStep, FedPiece>;

std::string message_of(const ToFeed& message);
// Of a segment one copy of its values.
std::string message_of(const FromFeed& message);

// Throws  InvalidInput that says what is wrong: an unknown message, one too short or too long,
//         numbers outside their ranges.
ToFeed read_to_feed(std::string_view bytes);
FromFeed read_from_feed(std::string_view bytes);

}  // namespace entrain::engine
