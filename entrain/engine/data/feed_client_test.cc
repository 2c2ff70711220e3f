#include "entrain/engine/data/feed_client.h"

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <thread>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/thread_safety.h"
#include "entrain/core/dataset/shard.h"

#include "entrain/engine/data/read_ahead.h"

#include "tests/oracle/engine/small_samples.h"
#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using oracle::TarWriter;
using oracle::TemporaryFolder;
using std::chrono::milliseconds;

constexpr int kSamples = 4;
constexpr float kFedValue = 42;  // no decoded value is like it

// A digest, of a digit.
std::string digest_like(char digit) {
  return std::string(32, digit);
}

// The feed's side, as the test makes it: what a rank says goes to `said`, and the test answers.
class FakeFeed {
 public:
  FakeFeed() : router_(context_, zmq::socket_type::router) {
    router_.set(zmq::sockopt::linger, 0);
    router_.bind("tcp://127.0.0.1:*");
  }

  [[nodiscard]] FeedAddress address() const {
    const std::string endpoint = router_.get(zmq::sockopt::last_endpoint);
    return read_feed_address(endpoint.substr(6), "test", /*listens=*/false);
  }

  // The next message that is no credit, within ten seconds.
  ToFeed next() {
    while (true) {
      ToFeed message = any();
      if (!std::holds_alternative<FeedCredit>(message)) {
        return message;
      }
    }
  }
  ToFeed any() {
    router_.set(zmq::sockopt::rcvtimeo, 10'000);
    zmq::message_t frame;
    if (!router_.recv(identity_).has_value() || !router_.recv(frame).has_value()) {
      throw SystemFailure("no message for ten seconds");
    }
    return read_to_feed(frame.to_string_view());
  }
  void send(const FromFeed& message) {
    zmq::message_t to;
    to.copy(identity_);
    router_.send(to, zmq::send_flags::sndmore);
    router_.send(frame_of(message_of(message)), zmq::send_flags::none);
  }
  // Answers the first hello, again until the rank goes on.
  FeedHello welcome() {
    auto hello = std::get<FeedHello>(next());
    send(FeedWelcome());
    return hello;
  }

 private:
  zmq::context_t context_;
  zmq::socket_t router_;
  zmq::message_t identity_;  // of the last that spoke
};

class FeedClientTest : public ::testing::Test {
 protected:
  // Samples of one flat image each.
  void SetUp() override {
    TarWriter tar;
    for (int sample = 0; sample < kSamples; ++sample) {
      const std::string name = concat("s", sample);
      tar.add(name + ".png", oracle::flat_png(16, 16, static_cast<std::uint8_t>(sample), 0, 255));
      tar.add(name + ".json", R"({"question": "which?", "answer": "this"})");
    }
    index_ =
        build_index(
            {folder_.write("train-000000.tar", tar.archive())}, folder_.path() / "index.csv", {})
            .index;
  }

  std::shared_ptr<FeedOptions> feed(const std::vector<FeedAddress>& addresses) {
    auto options = std::make_shared<FeedOptions>();
    options->addresses = addresses;
    options->deadline = milliseconds(500);
    options->note = [this](const std::string& line) {
      const MutexLock lock(mutex_);
      notes_ += line + "\n";
    };
    return options;
  }

  ReadAhead reader(const std::shared_ptr<FeedOptions>& options, bool check_steps = false) {
    ReadAheadOptions reader;
    reader.feed = options;
    reader.check_steps = check_steps;
    return ReadAhead(index_, model_, reader);
  }

  static StepNeeds needs(std::int64_t step) {
    StepNeeds needs = {{0, 1, 2, 3}, {{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {0, 3, 0}}, {0, 1}};
    needs.step = step;
    needs.digest = digest_like('a');
    return needs;
  }

  // Pieces 0 and 1 are texts, 2 to 5 segments of 16 patches of 48 values.
  static FedPiece segment(std::int64_t step, std::int64_t piece, std::int64_t patches = 16) {
    SegmentData data;
    data.input = at::full({patches, 48}, kFedValue);
    data.rows = 4;
    data.columns = patches / 4;
    return {{step, piece}, digest_like('a'), data};
  }
  static FedPiece text(std::int64_t step, std::int64_t piece) {
    SampleTokens data;
    data.tokens.ids = {1, 2, 3};
    data.kind = "fed";
    return {{step, piece}, digest_like('a'), data};
  }

  static float value_of(const SegmentData& data) { return data.input[0][0].item<float>(); }

  std::string notes() {
    const MutexLock lock(mutex_);
    return notes_;
  }
  void wait_for_note(const std::string& words) {
    for (int wait = 0; wait < 1000 && notes().find(words) == std::string::npos; ++wait) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    EXPECT_NE(notes().find(words), std::string::npos) << notes();
  }
  // Until so many pieces of the step have come from a feed.
  static void wait_until_fed(StepData& data, std::int64_t pieces) {
    for (int wait = 0; wait < 1000 && data.times().fed != pieces; ++wait) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    EXPECT_EQ(data.times().fed, pieces);
  }

  TemporaryFolder folder_;
  ModelSpec model_ = oracle::small_images_model();
  Index index_;
  Mutex mutex_;
  std::string notes_ ENTRAIN_GUARDED_BY(mutex_);
};

// While a feed serves, nothing is decoded ahead here.
TEST_F(FeedClientTest, TakesWhatTheFeedSends) {
  FakeFeed fake;
  ReadAhead ahead = reader(feed({fake.address()}));
  const std::shared_ptr<StepData> warm = ahead.queue(needs(0));
  const FeedHello hello = fake.welcome();
  EXPECT_EQ(hello.credit, std::int64_t{256} << 20U);
  wait_for_note("fed by");
  const std::shared_ptr<StepData> data = ahead.queue(needs(1));
  for (const FedPiece& piece :
       {text(1, 0), text(1, 1), segment(1, 2), segment(1, 3), segment(1, 4), segment(1, 5)}) {
    fake.send(piece);
  }
  wait_until_fed(*data, 6);
  for (int sample = 0; sample < kSamples; ++sample) {
    EXPECT_EQ(value_of(data->segment(0, sample, 0)), kFedValue);
  }
  EXPECT_EQ(data->text(1).ids, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(data->kind(0), "fed");
  EXPECT_EQ(data->times().pieces, 6);
}

TEST_F(FeedClientTest, KeepsWhatComesBeforeItsStep) {
  FakeFeed fake;
  ReadAhead ahead = reader(feed({fake.address()}));
  const std::shared_ptr<StepData> warm = ahead.queue(needs(0));
  fake.welcome();
  wait_for_note("fed by");
  fake.send(segment(1, 2));
  fake.send(segment(2, 2));
  std::this_thread::sleep_for(milliseconds(100));
  const std::shared_ptr<StepData> first = ahead.queue(needs(1));
  wait_until_fed(*first, 1);
  EXPECT_EQ(value_of(first->segment(0, 0, 0)), kFedValue);
  const std::shared_ptr<StepData> second = ahead.queue(needs(2));
  EXPECT_EQ(value_of(second->segment(0, 0, 0)), kFedValue);
}

// Each is decoded here, once, as if there were no feed.
TEST_F(FeedClientTest, DecodesWhatTheFeedCannotOrSendsWrongly) {
  FakeFeed fake;
  ReadAhead ahead = reader(feed({fake.address()}));
  const std::shared_ptr<StepData> warm = ahead.queue(needs(0));
  fake.welcome();
  wait_for_note("fed by");
  const std::shared_ptr<StepData> data = ahead.queue(needs(1));
  fake.send(FedPiece{{1, 2}, digest_like('a'), Undecoded()});
  fake.send(segment(1, 3, 12));  // of another size
  fake.send(text(1, 4));         // of another kind
  fake.send(segment(1, 99));     // no piece of the step
  fake.send(segment(1, 5));
  wait_until_fed(*data, 1);
  EXPECT_NE(value_of(data->segment(0, 0, 0)), kFedValue);
  EXPECT_NE(value_of(data->segment(0, 1, 0)), kFedValue);
  EXPECT_NE(value_of(data->segment(0, 2, 0)), kFedValue);
  EXPECT_EQ(value_of(data->segment(0, 3, 0)), kFedValue);
  EXPECT_EQ(data->times().fed, 1);
}

// Whatever a feed does with pieces that it is not to send any more.
TEST_F(FeedClientTest, TakesNoPieceTwice) {
  FakeFeed fake;
  ReadAhead ahead = reader(feed({fake.address()}));
  std::shared_ptr<StepData> warm = ahead.queue(needs(0));
  fake.welcome();
  wait_for_note("fed by");
  warm.reset();
  const std::shared_ptr<StepData> data = ahead.queue(needs(1));
  for (int round = 0; round < 3; ++round) {
    fake.send(segment(1, 2));
    fake.send(segment(0, 3));  // of a step that is over
  }
  wait_until_fed(*data, 1);
  EXPECT_EQ(value_of(data->segment(0, 0, 0)), kFedValue);
  fake.send(segment(1, 2));
  fake.send(segment(1, 3));
  wait_until_fed(*data, 2);
  EXPECT_EQ(ahead.ready_bytes(), 16 * 48 * 4);
  // All that was dropped is credit again.
  const std::int64_t frame = credit_of(segment(1, 2));
  std::int64_t released = 0;
  for (int message = 0; message < 100 && released < 7 * frame; ++message) {
    if (const ToFeed said = fake.any(); std::holds_alternative<FeedCredit>(said)) {
      released = std::get<FeedCredit>(said).released;
    }
  }
  EXPECT_EQ(released, 7 * frame);  // 3 of a step over, 2 + 1 sent twice, 1 used
}

TEST_F(FeedClientTest, LeavesAFeedThatHasAnotherStep) {
  FakeFeed fake;
  ReadAhead ahead = reader(feed({fake.address()}));
  const std::shared_ptr<StepData> warm = ahead.queue(needs(0));
  fake.welcome();
  wait_for_note("fed by");
  const std::shared_ptr<StepData> data = ahead.queue(needs(1));
  FedPiece other = segment(1, 2);
  other.digest = digest_like('b');
  fake.send(other);
  wait_for_note("it has step 1 as " + digest_like('b'));
  EXPECT_NE(value_of(data->segment(0, 0, 0)), kFedValue);
  wait_for_note("no feed is left");
}

TEST_F(FeedClientTest, LeavesAFeedThatRefusesOrTalksNonsense) {
  FakeFeed first;
  FakeFeed second;
  ReadAhead ahead = reader(feed({first.address(), second.address()}));
  const std::shared_ptr<StepData> data = ahead.queue(needs(0));
  first.next();
  first.send(FeedRefusal{"it serves another run"});
  wait_for_note("refuses: it serves another run");
  second.welcome();
  wait_for_note("fed by " + second.address().text);
  FedPiece unusual = segment(0, 2);
  unusual.digest = "short";
  second.send(unusual);
  wait_for_note("a digest of 5 characters");
  wait_for_note("no feed is left");
  EXPECT_NE(value_of(data->segment(0, 0, 0)), kFedValue);
}

TEST_F(FeedClientTest, ChangesToAnotherWhenOneIsSilent) {
  FakeFeed first;
  FakeFeed second;
  ReadAhead ahead = reader(feed({first.address(), second.address()}));
  const std::shared_ptr<StepData> warm = ahead.queue(needs(0));
  first.welcome();
  wait_for_note("fed by " + first.address().text);
  const std::shared_ptr<StepData> data = ahead.queue(needs(1));
  first.send(text(1, 0));
  wait_until_fed(*data, 1);
  wait_for_note("is lost: silent for 0.5 s");
  const FeedHello hello = second.welcome();
  EXPECT_GE(hello.from, (FeedPosition{1, 1}));  // what is here is not asked for again
  wait_for_note("fed by " + second.address().text);
  for (int sample = 0; sample < kSamples; ++sample) {
    EXPECT_NE(value_of(data->segment(0, sample, 0)), kFedValue);  // decoded here meanwhile
  }
}

// One that is slow, not silent: nobody waits longer than half of the deadline for a piece.
TEST_F(FeedClientTest, DecodesWhatAServingFeedIsLateWith) {
  FakeFeed fake;
  ReadAhead ahead = reader(feed({fake.address()}));
  const std::shared_ptr<StepData> warm = ahead.queue(needs(0));
  fake.welcome();
  wait_for_note("fed by");
  const std::shared_ptr<StepData> data = ahead.queue(needs(1));
  std::atomic<bool> done{false};
  std::thread alive([&] {
    while (!done) {
      fake.send(FeedAlive());
      std::this_thread::sleep_for(milliseconds(50));
    }
  });
  for (int sample = 0; sample < kSamples; ++sample) {
    EXPECT_NE(value_of(data->segment(0, sample, 0)), kFedValue);
  }
  done = true;
  alive.join();
  EXPECT_EQ(data->times().fed, 0);
  EXPECT_EQ(notes().find("is lost"), std::string::npos) << notes();
}

// A step that is queued after others were left out: what came for those is credit again.
TEST_F(FeedClientTest, ReleasesWhatCameForStepsThatAreLeftOut) {
  FakeFeed fake;
  ReadAhead ahead = reader(feed({fake.address()}));
  const std::shared_ptr<StepData> warm = ahead.queue(needs(0));
  fake.welcome();
  wait_for_note("fed by");
  fake.send(segment(1, 2));
  fake.send(segment(2, 2));
  std::this_thread::sleep_for(milliseconds(100));
  const std::shared_ptr<StepData> data = ahead.queue(needs(2));
  wait_until_fed(*data, 1);
  EXPECT_EQ(value_of(data->segment(0, 0, 0)), kFedValue);
  std::int64_t released = 0;
  for (int message = 0; message < 100 && released < 2 * credit_of(segment(1, 2)); ++message) {
    if (const ToFeed said = fake.any(); std::holds_alternative<FeedCredit>(said)) {
      released = std::get<FeedCredit>(said).released;
    }
  }
  EXPECT_EQ(released, 2 * credit_of(segment(1, 2)));
}

TEST_F(FeedClientTest, SaysHelloAgainToAFeedThatForgotIt) {
  FakeFeed fake;
  ReadAhead ahead = reader(feed({fake.address()}));
  const std::shared_ptr<StepData> data = ahead.queue(needs(3));
  fake.welcome();
  wait_for_note("fed by");
  while (!std::holds_alternative<FeedCredit>(fake.any())) {
  }
  fake.send(FeedUnknown());
  wait_for_note("started again");
  EXPECT_GE(std::get<FeedHello>(fake.next()).from.step, 3);
}

TEST_F(FeedClientTest, NothingIsWaitedForWhereNobodyListens) {
  ReadAhead ahead = reader(feed({read_feed_address("127.0.0.1:9", "test", false)}));
  const std::shared_ptr<StepData> data = ahead.queue(needs(0));
  for (int sample = 0; sample < kSamples; ++sample) {
    EXPECT_NE(value_of(data->segment(0, sample, 0)), kFedValue);
  }
  wait_for_note("no feed answers");
}

TEST_F(FeedClientTest, AStepIsCheckedByTheFeedOrHere) {
  FakeFeed fake;
  ReadAhead ahead = reader(feed({fake.address()}), /*check_steps=*/true);
  const std::shared_ptr<StepData> warm = ahead.queue(needs(0));
  EXPECT_EQ(warm->problem(), std::nullopt);  // here: nobody has answered
  fake.welcome();
  wait_for_note("fed by");
  // Nobody can decode any more, so the feed's word is all there is.
  folder_.write("train-000000.tar", "damaged");
  const std::shared_ptr<StepData> sound = ahead.queue(needs(1));
  fake.send(FedStep{1, digest_like('a'), true});
  EXPECT_EQ(sound->problem(), std::nullopt);
  const std::shared_ptr<StepData> bad = ahead.queue(needs(2));
  fake.send(FedStep{2, digest_like('a'), false});
  const std::optional<std::string> problem = bad->problem();
  ASSERT_TRUE(problem.has_value());
  EXPECT_NE(problem->find("train-000000.tar"), std::string::npos) << *problem;
}

}  // namespace
}  // namespace entrain::engine
