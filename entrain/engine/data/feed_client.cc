#include "entrain/engine/data/feed_client.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/data/fed_pieces.h"

namespace entrain::engine {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTick{10};         // between two looks at what was used
constexpr milliseconds kHelloEvery{100};  // until the feed answers
constexpr milliseconds kSignOfLife{250};  // between two messages to the feed at most
constexpr milliseconds kFirstRest{500};   // after no feed could be reached; doubled each time
constexpr milliseconds kLongestRest{10000};

// Whether a connection has ended, as ZeroMQ reports it.
class Connection : public zmq::monitor_t {
 public:
  // `number`: of the connections of one context.
  Connection(zmq::socket_t& socket, int number) {
    init(socket, concat("inproc://connection-", number), ZMQ_EVENT_DISCONNECTED);
  }
  bool has_ended() {
    while (check_event(0)) {
    }
    return ended_;
  }

 private:
  void on_event_disconnected(const zmq_event_t& /*event*/, const char* /*address*/) override {
    ended_ = true;
  }
  bool ended_ = false;
};

}  // namespace

// With one feed, from the first hello until it is lost.
class FeedClient::Session {
 public:
  Session(FeedClient& client, const FeedAddress& address)
      : client_(client),
        address_(address),
        socket_(socket_to_feed(client.context_,
                               address,
                               client.options_.key.has_value() ? &*client.options_.key : nullptr)),
        connection_(socket_, client.sessions_++) {
    socket_.connect(address.endpoint);
  }

  ~Session() { client_.live(false); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  End run() {
    const auto deadline = client_.options_.deadline;
    heard_ = Clock::now();
    while (!client_.stopping_) {
      say();
      hear();
      if (end_.has_value()) {
        return *end_;
      }
      if (live_) {
        if (const auto objection = client_.pieces_.objection(); objection.has_value()) {
          send(FeedGoodbye());
          client_.note(concat("feed ", address_.text, " refused: ", *objection));
          return End::kRefused;
        }
      }
      if (live_ && connection_.has_ended()) {
        return lost("its connection ended");
      }
      if (Clock::now() - heard_ > deadline) {
        return lost(concat("silent for ", static_cast<double>(deadline.count()) / 1e3, " s"));
      }
    }
    send(FeedGoodbye());
    return End::kStopped;
  }

 private:
  End lost(const std::string& why) {
    if (live_) {
      client_.note(concat("feed ", address_.text, " is lost: ", why));
    }
    return End::kLost;
  }

  bool send(const ToFeed& message) {
    said_ = Clock::now();
    return socket_.send(frame_of(message_of(message)), zmq::send_flags::dontwait).has_value();
  }

  // A hello until the feed welcomes us, then what was used.
  void say() {
    const auto since = Clock::now() - said_;
    if (!live_) {
      if (since >= kHelloEvery) {
        hello();
      }
      return;
    }
    const std::int64_t released = client_.pieces_.released() - released_before_;
    const bool much = released - told_ > client_.credit_ / 8;
    if (much || since >= kSignOfLife || (released > told_ && since >= kTick)) {
      const auto from = client_.pieces_.position();
      if (from.has_value() && send(FeedCredit{*from, released})) {
        told_ = released;
      }
    }
  }

  void hello() {
    const auto from = client_.pieces_.position();
    if (!from.has_value()) {
      heard_ = Clock::now();  // nothing to ask for yet
      return;
    }
    FeedHello hello;
    hello.run = client_.options_.run;
    hello.replica = client_.options_.replica;
    hello.lane = client_.options_.lane;
    hello.readers = client_.options_.readers;
    hello.from = *from;
    released_before_ = client_.pieces_.released();
    hello.credit = std::max<std::int64_t>(0, client_.credit_ - client_.pieces_.held());
    told_ = 0;
    send(hello);
  }

  void hear() {
    std::vector<zmq::pollitem_t> items = {{socket_.handle(), 0, ZMQ_POLLIN, 0}};
    wait_for_messages(items, kTick);
    zmq::message_t frame;
    const Clock::time_point until = Clock::now() + kTick;  // then speak again
    while (!end_.has_value() && Clock::now() < until &&
           socket_.recv(frame, zmq::recv_flags::dontwait).has_value()) {
      heard_ = Clock::now();
      try {
        std::visit([&](auto&& message) { handle(std::forward<decltype(message)>(message)); },
                   read_from_feed(frame.to_string_view()));
      } catch (const InvalidInput& error) {
        client_.note(concat("feed ", address_.text, ": ", error.what()));
        end_ = End::kRefused;
      }
    }
  }

  void handle(FeedWelcome /*message*/) {
    if (!live_) {
      live_ = true;
      client_.live(true);
      if (!client_.options_.expected || client_.sessions_ > 1) {
        client_.note(concat("fed by ", address_.text));
      }
    }
  }
  void handle(FeedRefusal&& message) {
    client_.note(concat("feed ", address_.text, " refuses: ", message.why));
    end_ = End::kRefused;
  }
  void handle(FeedAlive /*message*/) {}
  void handle(FeedUnknown /*message*/) {
    if (live_) {
      end_ = lost("it was started again");
    }
  }
  void handle(FeedGoodbye /*message*/) { end_ = lost("it ended"); }
  void handle(FedStep&& message) {
    if (live_) {
      client_.pieces_.take(message);
    }
  }
  void handle(FedPiece&& message) {
    if (live_) {
      client_.pieces_.take(std::move(message));
    }
  }

  FeedClient& client_;
  const FeedAddress& address_;
  zmq::socket_t socket_;
  Connection connection_;
  bool live_ = false;
  std::optional<End> end_;
  Clock::time_point heard_;
  Clock::time_point said_;
  std::int64_t released_before_ = 0;  // by `pieces_` at the hello
  std::int64_t told_ = 0;             // bytes released, as last told
};

FeedClient::FeedClient(FeedOptions options, std::int64_t credit, FedPieces& pieces)
    : options_(std::move(options)), credit_(credit), pieces_(pieces), live_(options_.expected) {
  thread_ = std::thread([this] {
    try {
      run();
    } catch (const zmq::error_t& error) {
      live(false);
      note(concat("no feed any more, so samples are decoded here: ", error.what()));
    }
  });
}

FeedClient::~FeedClient() {
  stopping_ = true;
  thread_.join();
}

void FeedClient::note(const std::string& line) const {
  if (options_.note) {
    options_.note(line);
  }
}

void FeedClient::live(bool is_live) {
  if (std::exchange(live_, is_live) != is_live) {
    pieces_.live(is_live);
  }
}

void FeedClient::rest(std::chrono::milliseconds time) const {
  const Clock::time_point end = Clock::now() + time;
  while (!stopping_ && Clock::now() < end) {
    std::this_thread::sleep_for(kTick);
  }
}

std::string FeedClient::addresses(const std::vector<const FeedAddress*>& feeds) {
  std::vector<std::string> texts;
  for (const FeedAddress* feed : feeds) {
    texts.push_back(feed->text);
  }
  return join(texts);
}

void FeedClient::run() {
  std::vector<const FeedAddress*> left;  // that have not refused
  for (const FeedAddress& address : options_.addresses) {
    left.push_back(&address);
  }
  std::rotate(left.begin(), left.begin() + options_.rank % std::ssize(left), left.end());
  std::size_t next = 0;
  std::size_t failures = 0;  // in a row
  milliseconds pause = kFirstRest;
  while (!stopping_ && !left.empty()) {
    const Clock::time_point begun = Clock::now();
    const End end = Session(*this, *left[next]).run();
    if (end == End::kRefused) {
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(next));
      next = left.empty() ? 0 : next % left.size();
      continue;
    }
    next = (next + 1) % left.size();
    const bool served = Clock::now() - begun > 2 * options_.deadline;
    failures = served ? 0 : failures + 1;
    pause = served ? kFirstRest : pause;
    if (failures >= left.size()) {
      if (pause == kFirstRest) {
        const auto& say = options_.unanswered ? options_.unanswered : options_.note;
        if (say) {
          say(concat("no feed answers within ",
                     static_cast<double>(options_.deadline.count()) / 1e3,
                     " s at ",
                     addresses(left),
                     ", so samples are decoded here: is it up, and has it the same key?"));
        }
      }
      failures = 0;
      rest(pause);
      pause = std::min(2 * pause, kLongestRest);
    }
  }
  if (!stopping_) {
    note("no feed is left for the rest of this run: everything is decoded here");
  }
}

}  // namespace entrain::engine
