#include "entrain/engine/train/feed_server.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <numeric>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/thread_safety.h"
#include "entrain/core/base/version.h"

#include "entrain/engine/data/read_ahead.h"
#include "entrain/engine/train/prepared_step.h"

namespace entrain::engine {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTick{20};
constexpr milliseconds kSignOfLife{200};       // to a rank that is sent nothing else
constexpr std::chrono::seconds kPatience{10};  // with a silent rank
constexpr std::chrono::seconds kReportEvery{10};
constexpr std::size_t kStepsAhead = 2;  // decoded for one rank at a time
constexpr std::size_t kStepsKept = 16;  // prepared, for ranks that are not at the same one
constexpr const char* kOutbox = "inproc://outbox";

// Steps of the run, each prepared once for all ranks.
class SharedSteps {
 public:
  explicit SharedSteps(const RunSetup& setup) : setup_(setup) {}

  std::shared_ptr<const PreparedStep> get(std::int64_t step) {
    std::promise<std::shared_ptr<const PreparedStep>> promise;
    std::shared_future<std::shared_ptr<const PreparedStep>> known;
    {
      const MutexLock lock(mutex_);
      const auto found = steps_.find(step);
      if (found != steps_.end()) {
        known = found->second;
      } else {
        steps_.emplace(step, promise.get_future().share());
        if (steps_.size() > kStepsKept) {
          steps_.erase(steps_.begin()->first == step ? std::next(steps_.begin()) : steps_.begin());
        }
      }
    }
    if (known.valid()) {
      return known.get();
    }
    try {
      auto prepared = std::make_shared<const PreparedStep>(prepare_step(setup_, step));
      promise.set_value(prepared);
      return prepared;
    } catch (...) {
      promise.set_exception(std::current_exception());
      throw;
    }
  }

 private:
  const RunSetup& setup_;
  Mutex mutex_;
  std::map<std::int64_t, std::shared_future<std::shared_ptr<const PreparedStep>>> steps_
      ENTRAIN_GUARDED_BY(mutex_);
};

struct Sent {
  std::atomic<std::int64_t> pieces{0};
  std::atomic<std::int64_t> bytes{0};
  std::atomic<std::int64_t> step{-1};  // the highest
};

// What the threads of a server share.
struct Shared {
  const RunSetup& setup;
  zmq::context_t context;
  SharedSteps steps;
  ReadAhead reader;
  Sent sent;
};

// Pushes the pieces of one rank, on a thread of its own.
class Pusher {
 public:
  Pusher(Shared& shared, std::string identity, const FeedHello& hello)
      : shared_(shared),
        identity_(std::move(identity)),
        hello_(hello),
        from_(hello.from),
        heard_(Clock::now()) {
    thread_ = std::thread([this] { run(); });
  }
  ~Pusher() {
    close();
    thread_.join();
  }
  Pusher(const Pusher&) = delete;
  Pusher& operator=(const Pusher&) = delete;

  // Its thread ends soon; has_ended() says when.
  void close() {
    {
      const MutexLock lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
  }
  [[nodiscard]] bool has_ended() const { return ended_; }

  [[nodiscard]] const FeedHello& hello() const { return hello_; }
  [[nodiscard]] Clock::time_point heard() const { return heard_; }
  Clock::time_point said;  // by the network thread

  // On the network thread.
  void hear(const FeedCredit& credit) {
    heard_ = Clock::now();
    const MutexLock lock(mutex_);
    from_ = std::max(from_, credit.from);
    released_ = std::max(released_, credit.released);
    changed_.notify_all();
  }
  void hear() { heard_ = Clock::now(); }

 private:
  struct QueuedStep {
    std::shared_ptr<const PreparedStep> prepared;
    StepNeeds needs;
    std::shared_ptr<StepData> data;
  };

  void run() {
    zmq::socket_t outbox(shared_.context, zmq::socket_type::push);
    outbox.set(zmq::sockopt::sndhwm, 0);
    outbox.set(zmq::sockopt::linger, 0);
    outbox.connect(kOutbox);
    outbox_ = &outbox;
    try {
      push_steps();
    } catch (const std::exception& error) {
      send(message_of(FeedRefusal{error.what()}));
    }
    outbox_ = nullptr;
    ended_ = true;
  }

  void push_steps() {
    std::deque<QueuedStep> queued;
    std::int64_t next = hello_.from.step;
    while (!is_closing()) {
      while (queued.size() < kStepsAhead && next < shared_.setup.config.steps) {
        queued.push_back(queue(next++));
      }
      if (queued.empty()) {
        return;
      }
      if (is_over(queued.front().prepared->step)) {
        queued.pop_front();
        next = std::max(next, from().step);
        continue;
      }
      push(queued.front());
      queued.pop_front();
    }
  }

  QueuedStep queue(std::int64_t number) {
    QueuedStep step;
    step.prepared = shared_.steps.get(number);
    step.needs = needs_of(step.prepared->program,
                          hello_.replica,
                          hello_.lane,
                          step.prepared->batch,
                          !shared_.setup.model.llm.mrope_sections.empty());
    step.data = shared_.reader.queue(step.needs);
    return step;
  }

  void push(const QueuedStep& step) {
    const PreparedStep& prepared = *step.prepared;
    if (shared_.setup.config.faults.on_bad_sample == kSkipStep) {
      const bool sound = !step.data->problem().has_value();
      send(message_of(FedStep{prepared.step, prepared.digest, sound}));
    }
    FedPiece piece;
    piece.position.step = prepared.step;
    piece.digest = prepared.digest;
    for (const int sample : step.needs.texts) {
      if (!push(piece, -1, [&] {
            return SampleTokens{step.data->text(sample), step.data->kind(sample)};
          })) {
        return;
      }
    }
    for (const SegmentNeed& need : step.needs.segments) {
      if (!push(piece, need.module, [&] {
            return step.data->segment(need.module, need.sample, need.segment);
          })) {
        return;
      }
    }
    std::int64_t highest = shared_.sent.step;
    while (highest < prepared.step &&
           !shared_.sent.step.compare_exchange_weak(highest, prepared.step)) {
    }
  }

  // Sends the piece unless it is of no use, and moves on to the next. Whether the step goes on.
  // `module`: of a segment; -1: a text.
  template <typename Decode>
  bool push(FedPiece& piece, int module, const Decode& decode) {
    if (is_closing() || is_over(piece.position.step)) {
      return false;
    }
    if (piece.position >= from()) {
      piece.content = decoded(decode);
      const std::int64_t credit = credit_of(piece);
      pack(piece, module);
      std::string message = message_of(FromFeed(piece));
      if (!wait_for_credit(credit)) {
        return false;
      }
      ++shared_.sent.pieces;
      shared_.sent.bytes += static_cast<std::int64_t>(message.size());
      send(std::move(message));
    }
    ++piece.position.piece;
    return true;
  }

  // Pixels as bytes, where they are.
  void pack(FedPiece& piece, int module) const {
    const ModelSpec& model = shared_.setup.model;
    const auto* segment = std::get_if<SegmentData>(&piece.content);
    if (segment == nullptr ||
        model.encoders[static_cast<std::size_t>(module)].modality != Modality::kVision) {
      return;
    }
    if (std::optional<PackedPixels> pixels = packed(*segment, model, module); pixels.has_value()) {
      piece.content = *std::move(pixels);
    }
  }

  template <typename Decode>
  static auto decoded(const Decode& decode) -> decltype(FedPiece::content) {
    try {
      return decode();
    } catch (const InvalidInput&) {
      return Undecoded();
    } catch (const SystemFailure&) {
      return Undecoded();
    }
  }

  void send(std::string message) {
    outbox_->send(zmq::buffer(identity_), zmq::send_flags::sndmore);
    outbox_->send(frame_of(std::move(message)), zmq::send_flags::none);
  }

  bool wait_for_credit(std::int64_t bytes) {
    MutexLock lock(mutex_);
    changed_.wait(lock.native(), [&]() ENTRAIN_REQUIRES(mutex_) {
      const std::int64_t under_way = pushed_ - released_;
      return closing_ || under_way <= 0 || under_way + bytes <= hello_.credit;
    });
    pushed_ += bytes;
    return !closing_;
  }
  bool is_closing() {
    const MutexLock lock(mutex_);
    return closing_;
  }
  FeedPosition from() {
    const MutexLock lock(mutex_);
    return from_;
  }
  bool is_over(std::int64_t step) { return from().step > step; }

  Shared& shared_;
  std::string identity_;
  FeedHello hello_;
  zmq::socket_t* outbox_ = nullptr;  // this thread's, while it runs
  Mutex mutex_;
  std::condition_variable changed_;
  FeedPosition from_ ENTRAIN_GUARDED_BY(mutex_);
  std::int64_t released_ ENTRAIN_GUARDED_BY(mutex_) = 0;  // bytes since the hello
  std::int64_t pushed_ ENTRAIN_GUARDED_BY(mutex_) = 0;    // the same
  bool closing_ ENTRAIN_GUARDED_BY(mutex_) = false;
  std::atomic<bool> ended_{false};
  Clock::time_point heard_;  // the network thread's
  std::thread thread_;
};

ReadAheadOptions reader_options(const RunSetup& setup, const FeedServerOptions& options) {
  ReadAheadOptions reader;
  reader.threads = options.workers;
  reader.memory_bytes = options.memory_bytes;
  reader.check_steps = setup.config.faults.on_bad_sample == kSkipStep;
  return reader;
}

// Why a hello is not of this run, or has a place that it has not.
std::string objection(const FeedHello& hello, const FeedRun& own, const Plan& plan) {
  const std::array<std::tuple<const char*, const std::string*, const std::string*>, 5> facts = {
      {{"version", &hello.run.version, &own.version},
       {"model", &hello.run.model, &own.model},
       {"index", &hello.run.index, &own.index},
       {"plan", &hello.run.plan, &own.plan},
       {"seed, steps, [data], update_every or on_bad_sample", &hello.run.data, &own.data}}};
  for (const auto& [what, theirs, ours] : facts) {
    if (*theirs != *ours) {
      return concat("it serves another run: ", what, " ", *ours, ", here ", *theirs);
    }
  }
  if (hello.replica < 0 || hello.replica >= plan.replicas || hello.lane < 0 ||
      hello.lane >= plan.num_lanes()) {
    return concat("the plan has no replica ", hello.replica, " with lane ", hello.lane);
  }
  return {};
}

std::string required_key(const FeedAddress& address, const char* where) {
  return concat(where,
                ": '",
                address.text,
                "' is reached over a network and there is no key: make one with `entrain feed "
                "--new-key feed.key` and give it to both sides (entrain feed --key, "
                "data.feed_key)");
}

}  // namespace

FeedRun feed_run_of(const RunSetup& setup) {
  Json data = setup.identity.config.at("data");
  for (const char* key :
       {"train", "read_ahead_mib", "decode_threads", "feed", "feed_key", "feed_deadline_s"}) {
    data.erase(key);
  }
  data["seed"] = setup.config.seed;
  data["steps"] = setup.config.steps;
  data["update_every"] = setup.config.optimizer.update_every;
  data["on_bad_sample"] = setup.config.faults.on_bad_sample;
  return {std::string(version()),
          setup.identity.model_digest,
          setup.identity.index_digest,
          setup.identity.plan_digest,
          digest_of(data.dump())};
}

std::shared_ptr<const FeedOptions> feed_options(const RunSetup& setup,
                                                int replica,
                                                int lane,
                                                int rank,
                                                std::function<void(const std::string&)> note) {
  const DataConfig& data = setup.config.data;
  if (data.feed.empty()) {
    return nullptr;
  }
  auto options = std::make_shared<FeedOptions>();
  for (const std::string& text : data.feed) {
    options->addresses.push_back(read_feed_address(text, "data.feed", /*listens=*/false));
    if (data.feed_key.empty() && !options->addresses.back().local) {
      throw InvalidInput(required_key(options->addresses.back(), "data.feed"));
    }
  }
  if (!data.feed_key.empty()) {
    options->key = read_feed_key(data.feed_key);
  }
  options->deadline = milliseconds(static_cast<std::int64_t>(1e3 * data.feed_deadline_s));
  options->run = feed_run_of(setup);
  options->replica = replica;
  options->lane = lane;
  options->rank = rank;
  options->note = std::move(note);
  return options;
}

Json first_needs(const RunSetup& setup) {
  const PreparedStep step = prepare_step(setup, 0);
  const bool text_positions = !setup.model.llm.mrope_sections.empty();
  Json ranks = Json::array();
  for (int replica = 0; replica < setup.plan.replicas; ++replica) {
    for (int lane = 0; lane < setup.plan.num_lanes(); ++lane) {
      const StepNeeds needs = needs_of(step.program, replica, lane, step.batch, text_positions);
      if (!needs.segments.empty() || !needs.texts.empty()) {
        const std::vector<std::int64_t> bytes =
            segment_bytes(needs, setup.train.index, setup.model);
        ranks.push_back(
            {{"replica", replica},
             {"lane", lane},
             {"segments", needs.segments.size()},
             {"segment_bytes", std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0})},
             {"texts", needs.texts.size()}});
      }
    }
  }
  return ranks;
}

struct FeedServer::State {
  State(const RunSetup& setup, const FeedServerOptions& given)
      : options(given),
        run(feed_run_of(setup)),
        shared{setup,
               zmq::context_t(),
               SharedSteps(setup),
               ReadAhead(setup.train.index, setup.model, reader_options(setup, given)),
               {}},
        inbox(shared.context, zmq::socket_type::pull) {
    if (options.key.has_value()) {
      ranks.emplace(shared.context, *options.key);
    } else if (!options.listen.local) {
      throw InvalidInput(required_key(options.listen, "--listen"));
    }
    inbox.set(zmq::sockopt::rcvhwm, 0);
    inbox.bind(kOutbox);
    router = listen_for_ranks(
        shared.context, options.listen, options.key.has_value() ? &*options.key : nullptr);
  }

  FeedServerOptions options;
  FeedRun run;
  Shared shared;
  zmq::socket_t inbox;  // what pushers send
  std::optional<AuthenticatedRanks> ranks;
  zmq::socket_t router;
  std::map<std::string, std::unique_ptr<Pusher>> pushers;  // by ZeroMQ's identity of the rank
  std::vector<std::unique_ptr<Pusher>> leaving;            // closed, until they have ended
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
    if (const auto known = pushers.find(identity); known != pushers.end()) {
      known->second->hear();  // its welcome is under way
      return;
    }
    close_if([&](const auto& entry) {  // the rank's last connection
      return entry.second->hello().replica == hello.replica &&
             entry.second->hello().lane == hello.lane &&
             Clock::now() - entry.second->heard() > kSignOfLife * 5;
    });
    send(identity, FeedWelcome());
    pushers.emplace(identity, std::make_unique<Pusher>(shared, identity, hello));
    note(concat("replica ", hello.replica, ", lane ", hello.lane, " from step ", hello.from.step));
  }
  void handle(const std::string& identity, const FeedCredit& credit) {
    const auto known = pushers.find(identity);
    if (known == pushers.end()) {
      send(identity, FeedUnknown());
    } else {
      known->second->hear(credit);
    }
  }
  void handle(const std::string& identity, FeedGoodbye /*message*/) {
    close_if([&](const auto& entry) { return entry.first == identity; });
  }

  // Without waiting for their threads.
  template <typename Predicate>
  void close_if(const Predicate& predicate) {
    for (auto entry = pushers.begin(); entry != pushers.end();) {
      if (predicate(*entry)) {
        entry->second->close();
        leaving.push_back(std::move(entry->second));
        entry = pushers.erase(entry);
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
      const auto known = pushers.find(identity.to_string());
      if (known != pushers.end()) {
        known->second->said = Clock::now();
        router.send(identity, zmq::send_flags::sndmore);
        router.send(frame, zmq::send_flags::dontwait);
      }
    }
  }

  void keep_in_touch() {
    const Clock::time_point now = Clock::now();
    close_if([&](const auto& entry) {
      if (now - entry.second->heard() <= kPatience) {
        return false;
      }
      note(concat("replica ",
                  entry.second->hello().replica,
                  ", lane ",
                  entry.second->hello().lane,
                  " is gone"));
      return true;
    });
    for (auto& [identity, pusher] : pushers) {
      if (now - pusher->said > kSignOfLife) {
        pusher->said = now;
        send(identity, FeedAlive());
      }
    }
    const std::int64_t pieces = shared.sent.pieces;
    if (now - reported > kReportEvery && pieces > reported_pieces) {
      const double seconds = std::chrono::duration<double>(now - reported).count();
      const std::int64_t bytes = shared.sent.bytes;
      note(concat(pushers.size(),
                  " ranks, step ",
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
    for (const auto& [identity, pusher] : pushers) {
      send(identity, FeedGoodbye());
    }
    router.set(zmq::sockopt::linger, 500);
    pushers.clear();
  }
};

void check_feed(const RunConfig& config) {
  for (const std::string& text : config.data.feed) {
    const FeedAddress address = read_feed_address(text, "data.feed", /*listens=*/false);
    if (config.data.feed_key.empty() && !address.local) {
      throw InvalidInput(required_key(address, "data.feed"));
    }
  }
  if (!config.data.feed_key.empty()) {
    read_feed_key(config.data.feed_key);
  }
}

FeedServer::FeedServer(const RunSetup& setup, const FeedServerOptions& options)
    : state_(std::make_unique<State>(setup, options)) {}
FeedServer::~FeedServer() = default;

std::string FeedServer::address() const {
  return state_->router.get(zmq::sockopt::last_endpoint);
}

void FeedServer::run(const std::atomic<bool>& stop) {
  state_->serve(stop);
}

}  // namespace entrain::engine
