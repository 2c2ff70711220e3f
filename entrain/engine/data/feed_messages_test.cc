#include "entrain/engine/data/feed_messages.h"

#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"

#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

const std::string kDigest = "0123456789abcdef0123456789abcdef";

FeedHello hello() {
  return {{"1.0", "model", "index", "plan", "data"}, 3, 1, 2, {7, 5}, 1 << 20};
}

FedPiece segment_piece() {
  SegmentData segment;
  segment.input = at::rand({6, 12});
  segment.rows = 2;
  segment.columns = 3;
  return {{4, 2}, kDigest, segment};
}

FedPiece text_piece() {
  SampleTokens text;
  text.kind = "chart";
  text.tokens.ids = {256, 258, 65, 66, 257};
  text.tokens.targets = {{1, 2}, {3, 5}};
  text.tokens.feature_begin = {2};
  return {{0, 0}, kDigest, text};
}

FedPiece pixel_piece() {
  return {{4, 3}, kDigest, PackedPixels{1, 2, 3, 2, "pixels"}};
}

std::vector<std::string> all_from_feed() {
  std::vector<std::string> messages;
  for (const FromFeed& message : std::vector<FromFeed>{FeedWelcome(),
                                                       FeedRefusal{"another run"},
                                                       FeedAlive(),
                                                       FeedUnknown(),
                                                       FeedGoodbye(),
                                                       FedStep{3, kDigest, true},
                                                       segment_piece(),
                                                       text_piece(),
                                                       pixel_piece(),
                                                       FedPiece{{1, 1}, kDigest, Undecoded()}}) {
    messages.push_back(message_of(message));
  }
  return messages;
}

TEST(FeedMessages, OfARankReadBackUnchanged) {
  const auto read = std::get<FeedHello>(read_to_feed(message_of(ToFeed(hello()))));
  EXPECT_EQ(read.run, hello().run);
  EXPECT_EQ(read.replica, 3);
  EXPECT_EQ(read.lane, 1);
  EXPECT_EQ(read.readers, 2);
  EXPECT_EQ(read.from, (FeedPosition{7, 5}));
  EXPECT_EQ(read.credit, 1 << 20);
  const auto credit = std::get<FeedCredit>(read_to_feed(message_of(FeedCredit{{9, 1}, 77})));
  EXPECT_EQ(credit.from, (FeedPosition{9, 1}));
  EXPECT_EQ(credit.released, 77);
  EXPECT_TRUE(std::holds_alternative<FeedGoodbye>(read_to_feed(message_of(ToFeed(FeedGoodbye())))));
}

TEST(FeedMessages, OfAFeedReadBackUnchanged) {
  const FedPiece sent = segment_piece();
  const auto piece = std::get<FedPiece>(read_from_feed(message_of(sent)));
  EXPECT_EQ(piece.position, sent.position);
  EXPECT_EQ(piece.digest, kDigest);
  const auto& segment = std::get<SegmentData>(piece.content);
  EXPECT_TRUE(segment.input.equal(std::get<SegmentData>(sent.content).input));
  EXPECT_EQ(segment.rows, 2);
  EXPECT_EQ(segment.columns, 3);
  const auto second = std::get<FedPiece>(read_from_feed(message_of(text_piece())));
  const auto& text = std::get<SampleTokens>(second.content);
  EXPECT_EQ(text.kind, "chart");
  EXPECT_EQ(text.tokens.ids, (std::vector<std::int64_t>{256, 258, 65, 66, 257}));
  EXPECT_EQ(text.tokens.targets, (std::vector<TokenRange>{{1, 2}, {3, 5}}));
  EXPECT_EQ(text.tokens.feature_begin, (std::vector<std::int64_t>{2}));
  const auto third = std::get<FedPiece>(read_from_feed(message_of(pixel_piece())));
  const auto& pixels = std::get<PackedPixels>(third.content);
  EXPECT_EQ(std::tuple(pixels.module, pixels.rows, pixels.columns, pixels.frames, pixels.values),
            std::tuple(1, 2, 3, 2, "pixels"));
  const auto step = std::get<FedStep>(read_from_feed(message_of(FedStep{3, kDigest, true})));
  EXPECT_EQ(step.step, 3);
  EXPECT_TRUE(step.sound);
  EXPECT_EQ(std::get<FeedRefusal>(read_from_feed(message_of(FeedRefusal{"why"}))).why, "why");
}

TEST(FeedMessages, CutAnywhereOrLongerAreRefused) {
  for (const std::string& message : all_from_feed()) {
    EXPECT_NO_THROW(read_from_feed(message));
    for (std::size_t size = 0; size < message.size(); ++size) {
      error_of<InvalidInput>([&] { read_from_feed(std::string_view(message).substr(0, size)); });
    }
    error_of<InvalidInput>([&] { read_from_feed(message + "x"); });
  }
  const std::string message = message_of(ToFeed(hello()));
  for (std::size_t size = 0; size < message.size(); ++size) {
    error_of<InvalidInput>([&] { read_to_feed(std::string_view(message).substr(0, size)); });
  }
}

// Whatever arrives is read or refused; lengths that lie take no memory.
TEST(FeedMessages, AnyBytesAreReadOrRefused) {
  Rng random(5);
  std::vector<std::string> messages = all_from_feed();
  messages.push_back(message_of(ToFeed(hello())));
  int refused = 0;
  for (int round = 0; round < 50'000; ++round) {
    std::string bytes = messages[random.below(messages.size())];
    for (int change = 0; change < 3; ++change) {
      bytes[random.below(bytes.size())] = static_cast<char>(random.below(256));
    }
    try {
      read_from_feed(bytes);
      read_to_feed(bytes);
    } catch (const InvalidInput&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10'000);
}

}  // namespace
}  // namespace entrain::engine
