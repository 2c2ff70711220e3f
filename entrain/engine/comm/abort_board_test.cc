#include "entrain/engine/comm/abort_board.h"

#include <atomic>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A store whose host is gone without closing its connections: every call blocks until released.
class SilentStore : public c10d::HashStore {
 public:
  explicit SilentStore(std::shared_future<void> released) : released_(std::move(released)) {}
  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<SilentStore>(released_);
  }
  bool check(const std::vector<std::string>& keys) override {
    released_.wait();
    return c10d::HashStore::check(keys);
  }
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    released_.wait();
    c10d::HashStore::set(key, value);
  }
  std::vector<std::uint8_t> compareSet(const std::string& key,
                                       const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override {
    released_.wait();
    return c10d::HashStore::compareSet(key, expected, desired);
  }

 private:
  std::shared_future<void> released_;
};

// A store whose host dies between two calls: the second call fails.
class FailingStore : public c10d::HashStore {
 public:
  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::intrusive_ptr<c10d::Store>::reclaim_copy(this);
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    if (key == "entrain/wait/1") {
      throw std::runtime_error("connection reset by peer");
    }
    return c10d::HashStore::get(key);
  }
};

std::string get_within_a_minute(std::future<std::string> found) {
  return found.wait_for(60s) == std::future_status::ready ? found.get() : "nothing was found";
}

TEST(AbortBoard, ReportsTheFirstReasonToTheOthers) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::atomic<int> own_found = 0;
  AbortBoard first(store, [&](const std::string&) { ++own_found; });
  first.publish("rank 0: the disk is full", 1h);
  AbortBoard second(store, [](const std::string&) {});
  second.publish("rank 1: stopped because another rank failed", 1h);
  std::promise<std::string> found;
  AbortBoard third(store, [&](const std::string& reason) { found.set_value(reason); });
  EXPECT_EQ(get_within_a_minute(found.get_future()), "rank 0: the disk is full");
  EXPECT_EQ(own_found, 0);  // it published the reason itself
}

TEST(AbortBoard, AReasonThatComesLaterIsFound) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::promise<std::string> found;
  AbortBoard waiting(store, [&](const std::string& reason) { found.set_value(reason); });
  AbortBoard failing(store, [](const std::string&) {});
  failing.publish("rank 3: out of memory", 1h);
  EXPECT_EQ(get_within_a_minute(found.get_future()), "rank 3: out of memory");
}

TEST(AbortBoard, ReportsWhatRanksWaitForUntilTheyNoLongerDo) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  AbortBoard own(store, [](const std::string&) {});
  AbortBoard other(store, [](const std::string&) {});
  const auto chain_from = [&](int rank) {
    own.waits_from(rank, 1h);  // after everything it published
    std::map<int, int> peers;
    const auto waits = other.waits_from(rank, 1h);
    for (const auto& [waiting, wait] : waits.value()) {
      EXPECT_EQ(wait.what, concat("message of rank ", wait.peer));
      peers[waiting] = wait.peer;
    }
    return peers;
  };
  for (const auto& [rank, peer] : std::map<int, int>{{0, 1}, {2, 0}, {3, 2}, {4, 5}, {5, 4}}) {
    own.publish_wait(rank, Wait{peer, concat("message of rank ", peer)});
  }
  EXPECT_EQ(chain_from(2), (std::map<int, int>{{0, 1}, {2, 0}}));
  EXPECT_EQ(chain_from(4), (std::map<int, int>{{4, 5}, {5, 4}}));
  EXPECT_EQ(chain_from(1), (std::map<int, int>{}));
  own.publish_wait(0, std::nullopt);
  EXPECT_EQ(chain_from(2), (std::map<int, int>{{2, 0}}));
}

TEST(AbortBoard, ReturnsNothingForHalfAChain) {
  AbortBoard board(c10::make_intrusive<FailingStore>(), [](const std::string&) {});
  board.publish_wait(0, Wait{1, "message"});
  board.publish_wait(1, Wait{2, "message"});
  EXPECT_TRUE(board.waits_from(2, 1h).has_value());
  EXPECT_FALSE(board.waits_from(0, 200ms).has_value());
}

TEST(AbortBoard, ReturnsNoWaitsOnceThereIsAReason) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  AbortBoard board(store, [](const std::string&) {});
  board.publish("rank 0: the disk is full", 1h);
  EXPECT_FALSE(board.waits_from(1, 1h).has_value());
}

TEST(AbortBoard, DoesNotWaitForAStoreThatDoesNotAnswer) {
  std::promise<void> release;
  const auto store = c10::make_intrusive<SilentStore>(release.get_future().share());
  const Clock::time_point begun = Clock::now();
  {
    AbortBoard board(store, [](const std::string&) { ADD_FAILURE() << "it found something"; });
    board.publish_wait(0, Wait{1, "message"});
    EXPECT_FALSE(board.waits_from(1, 100ms).has_value());
    board.publish("rank 0: the network is gone", 100ms);
  }
  EXPECT_LT(Clock::now() - begun, 60s);  // instead of for ever
  release.set_value();
}

}  // namespace
}  // namespace entrain::engine
