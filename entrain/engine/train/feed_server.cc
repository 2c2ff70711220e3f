#include "entrain/engine/train/feed_server.h"

#include <chrono>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/data/feed_socket.h"
#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/train/feed_pusher.h"
#include "entrain/engine/train/feed_run.h"

namespace entrain::engine {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTick{20};
constexpr milliseconds kSignOfLife{200};       // to a rank that is sent nothing else
constexpr std::chrono::seconds kPatience{10};  // with a silent rank
constexpr std::chrono::seconds kReportEvery{10};

ReadAheadOptions reader_options(const RunSetup& setup, const FeedServerOptions& options) {
  ReadAheadOptions reader;
  reader.threads = options.workers;
  reader.memory_bytes = options.memory_bytes;
  reader.check_steps = setup.config.faults.on_bad_sample == kSkipStep;
  return reader;
}

// Why a hello is not of this run, or has a place that it has not.
std::string objection(const FeedHello& hello, const FeedRun& own, const Plan& plan) {
  const std::string difference = feed_difference(hello.run, own);
  if (!difference.empty()) {
    return concat("it serves another run: ", difference);
  }
  if (hello.replica < 0 || hello.replica >= plan.replicas || hello.lane < 0 ||
      hello.lane >= plan.num_lanes()) {
    return concat("the plan has no replica ", hello.replica, " with lane ", hello.lane);
  }
  if (const int width = RankPlaces(plan).width(hello.lane);
      hello.readers < 1 || hello.readers > width) {
    return concat("lane ", hello.lane, " has ", counted(width, "rank"), ", not ", hello.readers);
  }
  return {};
}

}  // namespace

struct FeedServer::State {
  State(const RunSetup& setup, const FeedServerOptions& given, FeedSteps& steps, ReadAhead& reader)
      : options(given),
        run(feed_run_of(setup)),
        shared{setup, steps, reader, zmq::context_t(), {}},
        inbox(shared.context, zmq::socket_type::pull) {
    if (options.key.has_value()) {
      ranks.emplace(shared.context, *options.key);
    } else if (!options.listen.local) {
      throw InvalidInput(required_key(options.listen, "--listen"));
    }
    inbox.set(zmq::sockopt::rcvhwm, 0);
    inbox.bind(kFeedOutbox);
    router = listen_for_ranks(
        shared.context, options.listen, options.key.has_value() ? &*options.key : nullptr);
  }

  FeedServerOptions options;
  FeedRun run;
  FeedShared shared;
  zmq::socket_t inbox;  // what pushers send
  std::optional<AuthenticatedRanks> ranks;
  zmq::socket_t router;
  struct Rank {
    std::unique_ptr<FeedPusher> pusher;
    Clock::time_point heard;  // from it
    Clock::time_point said;   // to it
  };
  std::map<std::string, Rank> connected;             // by ZeroMQ's identity
  std::vector<std::unique_ptr<FeedPusher>> leaving;  // closed, until they have ended
  Clock::time_point reported = Clock::now();
  std::int64_t reported_pieces = 0;
  std::int64_t reported_bytes = 0;

  void note(const std::string& line) const {
    if (options.note) {
      options.note(line);
    }
  }

  void send(const std::string& identity, const FromFeed& message) {
    router.send(zmq::buffer(identity), zmq::send_flags::sndmore);
    router.send(frame_of(message_of(message)), zmq::send_flags::dontwait);
  }

  void hear() {
    zmq::message_t identity;
    zmq::message_t frame;
    while (router.recv(identity, zmq::recv_flags::dontwait).has_value()) {
      bool is_last = !identity.more();
      bool is_first = true;
      while (!is_last) {
        std::ignore = router.recv(frame, zmq::recv_flags::none);
        is_last = !frame.more();
        if (is_first && is_last) {
          hear(identity.to_string(), frame.to_string_view());
        }
        is_first = false;
      }
    }
  }

  void hear(const std::string& identity, std::string_view bytes) {
    try {
      std::visit([&](const auto& message) { handle(identity, message); }, read_to_feed(bytes));
    } catch (const InvalidInput& error) {
      send(identity, FeedRefusal{error.what()});
    }
  }

  void handle(const std::string& identity, const FeedHello& hello) {
    const std::string why = objection(hello, run, shared.setup.plan);
    if (!why.empty()) {
      note(concat("refused a rank: ", why));
      send(identity, FeedRefusal{why});
      return;
    }
    if (const auto known = connected.find(identity); known != connected.end()) {
      known->second.heard = Clock::now();  // its welcome is under way
      return;
    }
    close_if([&](const auto& entry) {  // the rank's last connection
      const FeedHello& other = entry.second.pusher->hello();
      return other.replica == hello.replica && other.lane == hello.lane &&
             Clock::now() - entry.second.heard > kSignOfLife * 5;
    });
    send(identity, FeedWelcome());
    connected.emplace(
        identity,
        Rank{std::make_unique<FeedPusher>(shared, identity, hello), Clock::now(), Clock::now()});
    note(concat("replica ", hello.replica, ", lane ", hello.lane, " from step ", hello.from.step));
  }
  void handle(const std::string& identity, const FeedCredit& credit) {
    const auto known = connected.find(identity);
    if (known == connected.end()) {
      send(identity, FeedUnknown());
    } else {
      known->second.heard = Clock::now();
      known->second.pusher->hear(credit);
    }
  }
  void handle(const std::string& identity, FeedGoodbye /*message*/) {
    close_if([&](const auto& entry) { return entry.first == identity; });
  }

  // Without waiting for their threads.
  template <typename Predicate>
  void close_if(const Predicate& predicate) {
    for (auto entry = connected.begin(); entry != connected.end();) {
      if (predicate(*entry)) {
        entry->second.pusher->close();
        leaving.push_back(std::move(entry->second.pusher));
        entry = connected.erase(entry);
      } else {
        ++entry;
      }
    }
    std::erase_if(leaving, [](const auto& pusher) { return pusher->has_ended(); });
  }

  // What pushers have sent since.
  void forward() {
    zmq::message_t identity;
    zmq::message_t frame;
    const Clock::time_point until = Clock::now() + kTick;
    while (Clock::now() < until && inbox.recv(identity, zmq::recv_flags::dontwait).has_value()) {
      std::ignore = inbox.recv(frame, zmq::recv_flags::none);
      const auto known = connected.find(identity.to_string());
      if (known != connected.end()) {
        known->second.said = Clock::now();
        router.send(identity, zmq::send_flags::sndmore);
        router.send(frame, zmq::send_flags::dontwait);
      }
    }
  }

  void keep_in_touch() {
    const Clock::time_point now = Clock::now();
    close_if([&](const auto& entry) {
      if (now - entry.second.heard <= kPatience) {
        return false;
      }
      note(concat("replica ",
                  entry.second.pusher->hello().replica,
                  ", lane ",
                  entry.second.pusher->hello().lane,
                  " is gone"));
      return true;
    });
    for (auto& [identity, rank] : connected) {
      if (now - rank.said > kSignOfLife) {
        rank.said = now;
        send(identity, FeedAlive());
      }
    }
    const std::int64_t pieces = shared.sent.pieces;
    if (now - reported > kReportEvery && pieces > reported_pieces) {
      const double seconds = std::chrono::duration<double>(now - reported).count();
      const std::int64_t bytes = shared.sent.bytes;
      note(concat(counted(std::ssize(connected), "rank"),
                  ", sent up to step ",
                  shared.sent.step.load(),
                  ": ",
                  std::llround(static_cast<double>(pieces - reported_pieces) / seconds),
                  " images, clips and texts/s, ",
                  std::llround(static_cast<double>(bytes - reported_bytes) / seconds / 1e6),
                  " MB/s"));
      reported = now;
      reported_pieces = pieces;
      reported_bytes = bytes;
    }
  }

  void serve(const std::atomic<bool>& stop) {
    std::vector<zmq::pollitem_t> items = {{router.handle(), 0, ZMQ_POLLIN, 0},
                                          {inbox.handle(), 0, ZMQ_POLLIN, 0}};
    if (ranks.has_value()) {
      items.push_back({ranks->socket().handle(), 0, ZMQ_POLLIN, 0});
    }
    while (!stop) {
      wait_for_messages(items, kTick);
      if (items.size() > 2 && (items[2].revents & ZMQ_POLLIN) != 0) {
        ranks->answer();
      }
      hear();
      forward();
      keep_in_touch();
    }
    for (const auto& [identity, rank] : connected) {
      send(identity, FeedGoodbye());
    }
    router.set(zmq::sockopt::linger, 500);
    connected.clear();
  }
};

FeedServer::FeedServer(const RunSetup& setup, const FeedServerOptions& options)
    : own_steps_(std::make_unique<PreparedSteps>(setup)),
      own_reader_(std::make_unique<ReadAhead>(
          setup.train.index, setup.model, reader_options(setup, options))),
      state_(std::make_unique<State>(setup, options, *own_steps_, *own_reader_)) {}
FeedServer::FeedServer(const RunSetup& setup,
                       const FeedServerOptions& options,
                       FeedSteps& steps,
                       ReadAhead& reader)
    : state_(std::make_unique<State>(setup, options, steps, reader)) {}
FeedServer::~FeedServer() = default;

std::string FeedServer::address() const {
  return state_->router.get(zmq::sockopt::last_endpoint);
}

void FeedServer::run(const std::atomic<bool>& stop) {
  state_->serve(stop);
}

}  // namespace entrain::engine
