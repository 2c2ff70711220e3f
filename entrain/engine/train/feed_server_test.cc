#include "entrain/engine/train/feed_server.h"

#include <chrono>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/thread_safety.h"

#include "entrain/engine/data/read_ahead.h"
#include "entrain/engine/train/feed_run.h"
#include "entrain/engine/train/prepared_step.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using std::chrono::milliseconds;
using tiny::RunFolder;

// A server on a thread, at a port of its own.
class RunningServer {
 public:
  explicit RunningServer(const RunSetup& setup,
                         const std::optional<FeedKey>& key = {},
                         int workers = 2)
      : server_(setup, options(key, workers)) {
    address = server_.address().substr(6);
    thread_ = std::thread([this] { server_.run(stop_); });
  }
  ~RunningServer() {
    stop_ = true;
    thread_.join();
  }
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;

  std::string address;

 private:
  static FeedServerOptions options(const std::optional<FeedKey>& key, int workers) {
    FeedServerOptions options;
    options.listen = read_feed_address("127.0.0.1:0", "test", /*listens=*/true);
    options.key = key;
    options.workers = workers;
    return options;
  }

  FeedServer server_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// What ranks say of their feeds.
class Notes {
 public:
  std::function<void(const std::string&)> taker() {
    return [this](const std::string& line) {
      const MutexLock lock(mutex_);
      text_ += line + "\n";
    };
  }
  std::string text() {
    const MutexLock lock(mutex_);
    return text_;
  }
  void wait_for(const std::string& words) {
    for (int wait = 0; wait < 1000 && text().find(words) == std::string::npos; ++wait) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    EXPECT_NE(text().find(words), std::string::npos) << text();
  }

 private:
  Mutex mutex_;
  std::string text_ ENTRAIN_GUARDED_BY(mutex_);
};

// A rank's connection whose messages the test writes and reads.
class RawRank {
 public:
  RawRank(const std::string& address, const FeedKey* key)
      : at_(read_feed_address(address, "test", /*listens=*/false)),
        socket_(socket_to_feed(context_, at_, key)) {
    socket_.set(zmq::sockopt::immediate, false);
    socket_.connect(at_.endpoint);
  }
  void send(std::string message) {
    socket_.send(frame_of(std::move(message)), zmq::send_flags::none);
  }
  // The next message that is no sign of life; nothing after `patience`.
  std::optional<FromFeed> next(milliseconds patience = milliseconds(10'000)) {
    const auto end = std::chrono::steady_clock::now() + patience;
    zmq::message_t frame;
    socket_.set(zmq::sockopt::rcvtimeo, 10);
    while (std::chrono::steady_clock::now() < end) {
      if (socket_.recv(frame).has_value()) {
        FromFeed message = read_from_feed(frame.to_string_view());
        if (!std::holds_alternative<FeedAlive>(message)) {
          return message;
        }
      }
    }
    return std::nullopt;
  }

 private:
  zmq::context_t context_;
  FeedAddress at_;
  zmq::socket_t socket_;
};

class FeedServerTest : public ::testing::Test {
 protected:
  FeedServerTest() {
    run_.config.plan.replicas = 2;
    run_.config.data.validation_fraction = 0;
  }

  static StepNeeds needs_at(const RunSetup& setup, int lane, std::int64_t number) {
    const PreparedStep step = prepare_step(setup, number);
    StepNeeds needs = needs_of(step.program, /*replica=*/1, lane, step.batch);
    needs.step = number;
    needs.digest = step.digest;
    return needs;
  }

  static FeedHello hello(const RunSetup& setup, std::int64_t credit, FeedPosition from = {}) {
    return {feed_run_of(setup), /*replica=*/1, /*lane=*/0, /*readers=*/1, from, credit};
  }

  RunFolder run_;
};

TEST_F(FeedServerTest, SendsEveryPieceOfEveryStepAsItIsDecodedHere) {
  const RunSetup setup = prepare_run(run_.config);
  const RunningServer server(setup);
  RunSetup fed = setup;
  fed.config.data.feed = {server.address};
  for (const int lane : {0, 1}) {
    ReadAhead own(setup.train.index, setup.model, {});
    Notes notes;
    ReadAheadOptions options;
    auto feed = std::make_shared<FeedOptions>(
        unfed_options(fed, /*replica=*/1, lane, /*rank=*/0, /*readers=*/1, notes.taker()));
    add_feeds(fed.config.data, *feed);
    options.feed = std::move(feed);
    ReadAhead ahead(setup.train.index, setup.model, options);
    std::int64_t pieces = 0;
    for (std::int64_t step = 0; step < setup.config.steps; ++step) {
      const StepNeeds needs = needs_at(setup, lane, step);
      const std::shared_ptr<StepData> expected = own.queue(needs);
      const std::shared_ptr<StepData> given = ahead.queue(needs);
      for (int wait = 0; step > 0 && wait < 500 && given->times().fed != given->times().pieces;
           ++wait) {
        std::this_thread::sleep_for(milliseconds(10));
      }
      for (const SegmentNeed& need : needs.segments) {
        const SegmentData a = expected->segment(need.module, need.sample, need.segment);
        const SegmentData b = given->segment(need.module, need.sample, need.segment);
        EXPECT_TRUE(a.input.equal(b.input));
        EXPECT_EQ(std::pair(a.rows, a.columns), std::pair(b.rows, b.columns));
      }
      for (const int sample : needs.texts) {
        EXPECT_EQ(expected->text(sample).ids, given->text(sample).ids);
        EXPECT_EQ(expected->text(sample).targets, given->text(sample).targets);
        EXPECT_EQ(expected->text(sample).feature_begin, given->text(sample).feature_begin);
        EXPECT_EQ(expected->kind(sample), given->kind(sample));
      }
      pieces += step > 0 ? given->times().pieces : 0;
      if (step == 0) {
        notes.wait_for("fed by");
      } else {
        EXPECT_EQ(given->times().fed, given->times().pieces) << "step " << step;
      }
    }
    EXPECT_GT(pieces, 3);
  }
}

TEST_F(FeedServerTest, SendsNoMoreThanTheCreditAndBeginsWhereTheRankIs) {
  const RunSetup setup = prepare_run(run_.config);
  const RunningServer server(setup);
  RawRank rank(server.address, nullptr);
  rank.send(message_of(ToFeed(hello(setup, /*credit=*/1, {1, 1}))));
  EXPECT_TRUE(std::holds_alternative<FeedWelcome>(rank.next().value()));
  FeedPosition last = {1, 0};
  std::int64_t released = 0;
  for (int piece = 0; piece < 3; ++piece) {
    const auto sent = std::get<FedPiece>(rank.next().value());
    // How many pieces a step has hangs on the assignment.
    const FeedPosition next = sent.position.step == last.step
                                  ? FeedPosition{last.step, last.piece + 1}
                                  : FeedPosition{last.step + 1, 0};
    EXPECT_EQ(sent.position, next);
    EXPECT_EQ(sent.digest, prepare_step(setup, sent.position.step).digest);
    last = sent.position;
    EXPECT_FALSE(rank.next(milliseconds(150)).has_value());  // none while one is not used
    EXPECT_TRUE(std::holds_alternative<PackedPixels>(sent.content));
    released += credit_of({{}, "", unpacked(std::get<PackedPixels>(sent.content), setup.model)});
    rank.send(message_of(FeedCredit{last, released}));
  }
  // To the end of the run, in order, but for what the rank says it has.
  rank.send(message_of(FeedCredit{{3, 0}, std::int64_t{1} << 40U}));
  bool skipped = false;
  while (const std::optional<FromFeed> message = rank.next(milliseconds(500))) {
    const FeedPosition position = std::get<FedPiece>(*message).position;
    EXPECT_GT(position, last);
    skipped = skipped || (last.step < 3 && position.step == 3);
    last = position;
  }
  EXPECT_TRUE(skipped);
  EXPECT_EQ(last.step, 3);
}

TEST_F(FeedServerTest, RefusesOtherRunsPlacesAndNonsenseByName) {
  const RunSetup setup = prepare_run(run_.config);
  const RunningServer server(setup);
  const auto refusal = [&](const std::string& message) {
    RawRank rank(server.address, nullptr);
    rank.send(message);
    const auto answer = rank.next();
    EXPECT_TRUE(answer.has_value() && std::holds_alternative<FeedRefusal>(*answer));
    return answer.has_value() ? std::get<FeedRefusal>(*answer).why : "";
  };
  RunConfig other = run_.config;
  other.seed = 4;
  EXPECT_NE(refusal(message_of(ToFeed(hello(prepare_run(other), 1)))).find("seed 3, here 4"),
            std::string::npos);
  other = run_.config;
  other.plan.num_slots = 4;
  EXPECT_NE(refusal(message_of(ToFeed(hello(prepare_run(other), 1)))).find("plan"),
            std::string::npos);
  other = run_.config;
  other.data.train = run_.make_index("other", tiny::colour_shard(4, 12));
  EXPECT_NE(refusal(message_of(ToFeed(hello(prepare_run(other), 1)))).find("index"),
            std::string::npos);
  FeedHello nowhere = hello(setup, 1);
  nowhere.lane = 2;
  EXPECT_NE(refusal(message_of(ToFeed(nowhere))).find("lane 2"), std::string::npos);
  FeedHello two = hello(setup, 1);
  two.readers = 2;
  EXPECT_NE(refusal(message_of(ToFeed(two))).find("lane 0 has 1 rank, not 2"), std::string::npos);
  EXPECT_NE(refusal("\x07nonsense").find("unknown kind"), std::string::npos);
  // Settings that change nothing of what is decoded; a longer run is served to its end.
  other = run_.config;
  other.steps = setup.config.steps + 2;
  other.output = run_.path("elsewhere").string();
  other.data.decode_threads = 3;
  RawRank rank(server.address, nullptr);
  rank.send(message_of(
      ToFeed(hello(prepare_run(other), std::int64_t{1} << 40U, {setup.config.steps, 0}))));
  EXPECT_TRUE(std::holds_alternative<FeedWelcome>(rank.next().value()));
  std::int64_t last = 0;
  while (const std::optional<FromFeed> message = rank.next(milliseconds(500))) {
    last = std::get<FedPiece>(*message).position.step;
  }
  EXPECT_EQ(last, other.steps - 1);
}

TEST_F(FeedServerTest, SaysWhenItDoesNotKnowARank) {
  const RunSetup setup = prepare_run(run_.config);
  const RunningServer server(setup);
  RawRank rank(server.address, nullptr);
  rank.send(message_of(FeedCredit{{0, 0}, 5}));
  EXPECT_TRUE(std::holds_alternative<FeedUnknown>(rank.next().value()));
}

TEST_F(FeedServerTest, AnswersNobodyWithoutItsKey) {
  const RunSetup setup = prepare_run(run_.config);
  const FeedKey key = new_feed_key();
  const RunningServer server(setup, key);
  const std::string message = message_of(ToFeed(hello(setup, 1)));
  FeedKey other = new_feed_key();
  other.feed_public = key.feed_public;  // knows the feed's, but is not one of its ranks
  const FeedKey stranger = new_feed_key();
  for (const FeedKey* wrong : std::initializer_list<const FeedKey*>{nullptr, &other, &stranger}) {
    RawRank rank(server.address, wrong);
    rank.send(message);
    EXPECT_FALSE(rank.next(milliseconds(500)).has_value());
  }
  RawRank rank(server.address, &key);
  rank.send(message);
  EXPECT_TRUE(std::holds_alternative<FeedWelcome>(rank.next().value()));
}

TEST_F(FeedServerTest, ListensToOthersWithAKeyOnly) {
  const RunSetup setup = prepare_run(run_.config);
  FeedServerOptions options;
  options.listen = read_feed_address(":0", "--listen", /*listens=*/true);
  EXPECT_NE(error_of<InvalidInput>([&] { FeedServer server(setup, options); }).find("--new-key"),
            std::string::npos);
  RunConfig config = run_.config;
  config.data.feed = {"host:7000"};
  EXPECT_NE(error_of<InvalidInput>([&] { prepare_run(config); }).find("data.feed_key"),
            std::string::npos);
}

TEST_F(FeedServerTest, SaysThatItsAddressIsTaken) {
  const RunSetup setup = prepare_run(run_.config);
  const RunningServer first(setup);
  FeedServerOptions options;
  options.listen = read_feed_address(first.address, "--listen", /*listens=*/true);
  EXPECT_NE(error_of<SystemFailure>([&] { FeedServer server(setup, options); }).find(first.address),
            std::string::npos);
}

TEST_F(FeedServerTest, TakesNoSocketOfThisHostFromAnother) {
  const RunSetup setup = prepare_run(run_.config);
  FeedServerOptions options;
  options.listen =
      read_feed_address("ipc://" + run_.path("feed.sock").string(), "--listen", /*listens=*/true);
  {
    const FeedServer first(setup, options);
    EXPECT_NE(
        error_of<SystemFailure>([&] { FeedServer server(setup, options); }).find("already in use"),
        std::string::npos);
  }
  const FeedServer next(setup, options);  // what one that ended has left
}

// A sample that cannot be decoded: the feed says so, and the rank finds out why by itself.
TEST_F(FeedServerTest, LeavesToTheRankWhatItCannotDecode) {
  run_.config.faults.on_bad_sample = kSkipStep;
  const RunSetup setup = prepare_run(run_.config);
  std::filesystem::remove(run_.path("train-000000.tar"));
  const RunningServer server(setup);
  RawRank rank(server.address, nullptr);
  rank.send(message_of(ToFeed(hello(setup, 1 << 30))));
  EXPECT_TRUE(std::holds_alternative<FeedWelcome>(rank.next().value()));
  const auto step = std::get<FedStep>(rank.next().value());
  EXPECT_FALSE(step.sound);
  EXPECT_TRUE(std::holds_alternative<Undecoded>(std::get<FedPiece>(rank.next().value()).content));
}

}  // namespace
}  // namespace entrain::engine
