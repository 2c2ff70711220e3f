#include "entrain/engine/comm/thread_comm.h"

#include <atomic>
#include <functional>
#include <numeric>
#include <thread>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"

#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using std::chrono::milliseconds;

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void on_all_ranks(ThreadCommGroup& group, const std::function<void(Comm&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      try {
        body(group.comm(rank));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        group.abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

at::Tensor random_tensor(Rng& rng, std::int64_t size) {
  at::Tensor tensor = at::empty({size});
  auto* values = tensor.data_ptr<float>();
  for (std::int64_t i = 0; i < size; ++i) {
    values[i] = static_cast<float>(rng.uniform() - 0.5) * 1e3F;
  }
  return tensor;
}

// inputs[rank]: what a rank brings.
std::vector<at::Tensor> random_inputs(int ranks, std::int64_t size, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<at::Tensor> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(random_tensor(rng, size));
  }
  return inputs;
}

// Element by element from the first rank to the last.
at::Tensor plain_sum(const std::vector<at::Tensor>& inputs) {
  at::Tensor sum = inputs[0].clone();
  auto* result = sum.data_ptr<float>();
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    const auto* values = inputs[rank].data_ptr<float>();
    for (std::int64_t i = 0; i < sum.numel(); ++i) {
      result[i] += values[i];
    }
  }
  return sum;
}

TEST(ThreadCommGroup, RefusesImpossibleOptions) {
  EXPECT_THROW(ThreadCommGroup(0), InvalidInput);
  EXPECT_THROW(ThreadCommGroup(1, milliseconds(0)), InvalidInput);
}

TEST(ThreadComm, KeepsOrderPerChannel) {
  ThreadCommGroup group(2);
  constexpr int kMessages = 50;
  on_all_ranks(group, [&](Comm& comm) {
    for (int channel = 0; channel < 2; ++channel) {
      const ChannelKey key{0, 1, channel};
      for (int i = 0; i < kMessages; ++i) {
        const int value = 1000 * channel + i;
        if (comm.rank() == 0) {
          comm.send(key, static_cast<std::uint64_t>(i), at::full({1}, value, at::kInt));
        } else {
          auto receive = comm.post_receive(key, static_cast<std::uint64_t>(i), {1}, at::kInt);
          EXPECT_EQ(receive->wait().item<int>(), value);
        }
      }
    }
  });
}

TEST(ThreadComm, GivesEachReceiveTheMessageOfItsPlaceWhateverIsWaitedForFirst) {
  ThreadCommGroup group(2);
  on_all_ranks(group, [&](Comm& comm) {
    const ChannelKey key{0, 1, 0};
    if (comm.rank() == 0) {
      for (int i = 0; i < 3; ++i) {
        comm.send(key, 7, at::full({1}, i, at::kInt));
      }
      return;
    }
    std::vector<std::unique_ptr<PendingReceive>> receives;
    for (int i = 0; i < 3; ++i) {
      receives.push_back(comm.post_receive(key, 7, {1}, at::kInt));
    }
    EXPECT_EQ(receives[2]->wait().item<int>(), 2);
    EXPECT_EQ(receives[0]->wait().item<int>(), 0);
    EXPECT_EQ(receives[1]->wait().item<int>(), 1);
  });
}

TEST(ThreadComm, HandsTensorsOverWithoutCopyAndWithoutGraph) {
  ThreadCommGroup group(1);
  Comm& comm = group.comm(0);
  const at::Tensor weight = at::ones({2, 3}).set_requires_grad(true);
  comm.send({0, 0, 0}, 1, weight);
  auto receive = comm.post_receive({0, 0, 0}, 1, {2, 3}, at::kFloat);
  const at::Tensor received = receive->wait();
  EXPECT_EQ(received.data_ptr(), weight.data_ptr());
  EXPECT_FALSE(received.requires_grad());
  comm.send({0, 0, 0}, 1, weight.t());
  EXPECT_TRUE(comm.post_receive({0, 0, 0}, 1, {3, 2}, at::kFloat)->wait().is_contiguous());
}

TEST(ThreadComm, RefusesAnotherTagShapeOrType) {
  ThreadCommGroup group(2);
  const ChannelKey key{0, 1, 3};
  const auto received =
      [&](std::uint64_t tag, std::vector<std::int64_t> shape, at::ScalarType type) {
        group.comm(0).send(key, 11, at::ones({2, 3}));
        auto receive = group.comm(1).post_receive(key, tag, std::move(shape), type);
        return error_of<InternalError>([&] { receive->wait(); });
      };
  const std::string tag = received(12, {2, 3}, at::kFloat);
  EXPECT_NE(tag.find("channel 3 from rank 0 to rank 1"), std::string::npos) << tag;
  EXPECT_NE(tag.find("tag 11, the receive expects 12"), std::string::npos) << tag;
  const std::string shape = received(11, {3, 2}, at::kFloat);
  EXPECT_NE(shape.find("Float[2, 3], the receive expects Float[3, 2]"), std::string::npos) << shape;
  const std::string type = received(11, {2, 3}, at::kDouble);
  EXPECT_NE(type.find("the receive expects Double"), std::string::npos) << type;
}

TEST(ThreadComm, RefusesToSendOrReceiveForAnotherRank) {
  ThreadCommGroup group(2);
  EXPECT_THROW(group.comm(1).send({0, 1, 0}, 0, at::ones({1})), InternalError);
  EXPECT_THROW(group.comm(0).post_receive({0, 1, 0}, 0, {1}, at::kFloat), InternalError);
  EXPECT_THROW(group.comm(0).send({0, 2, 0}, 0, at::ones({1})), InternalError);
  EXPECT_THROW(group.comm(0).barrier({1}), InternalError);
}

TEST(ThreadComm, NamesRankAndChannelAtTheDeadline) {
  ThreadCommGroup group(3, milliseconds(50));
  auto receive = group.comm(2).post_receive({1, 2, 4}, 0, {1}, at::kFloat);
  const std::string message = error_of<SystemFailure>([&] { receive->wait(); });
  EXPECT_NE(message.find("rank 2"), std::string::npos) << message;
  EXPECT_NE(message.find("channel 4 from rank 1 to rank 2"), std::string::npos) << message;
  EXPECT_NE(message.find("50"), std::string::npos) << message;
}

TEST(ThreadComm, NamesTheMissingRanksOfACollectiveAtTheDeadline) {
  ThreadCommGroup group(4, milliseconds(50));
  const std::string message = error_of<SystemFailure>([&] { group.comm(2).barrier(all_ranks(4)); });
  EXPECT_EQ(message,
            "rank 2: no collective over ranks 0, 1, 2, 3 within 50 ms, ranks 0, 1, 3 are missing; "
            "rank 0 is not known to wait");
}

TEST(ThreadComm, NamesTheRankAtWhichAChainOfWaitsEnds) {
  ThreadCommGroup group(3, milliseconds(50));
  auto receive = group.comm(0).post_receive({1, 0, 4}, 0, {1}, at::kFloat);
  EXPECT_THROW(receive->wait(), SystemFailure);
  const std::string message = error_of<SystemFailure>([&] { group.comm(2).barrier({0, 2}); });
  EXPECT_EQ(message,
            "rank 2: no collective over ranks 0, 2 within 50 ms, ranks 0 are missing; rank 0 waits "
            "for rank 1 (message number 0 on channel 4 from rank 1 to rank 0); rank 1 is not known "
            "to wait");
}

TEST(ThreadComm, AWaitThatEndedIsNoLongerKnown) {
  ThreadCommGroup group(3, milliseconds(2000));
  auto receive = group.comm(0).post_receive({1, 0, 4}, 0, {1}, at::kFloat);
  std::thread sender([&] {
    std::this_thread::sleep_for(milliseconds(1100));  // others know of the wait by then
    group.comm(1).send({1, 0, 4}, 0, at::ones({1}));
  });
  receive->wait();
  sender.join();
  const std::string message = error_of<SystemFailure>([&] { group.comm(2).barrier({0, 2}); });
  EXPECT_NE(message.find("missing; rank 0 is not known to wait"), std::string::npos) << message;
}

TEST(ThreadComm, AbortWakesEveryWaitingRankWithTheFirstReason) {
  ThreadCommGroup group(6);
  std::atomic<int> stopped{0};
  std::vector<std::thread> threads;
  for (int rank = 1; rank < 6; ++rank) {
    threads.emplace_back([&, rank] {
      Comm& comm = group.comm(rank);
      const auto wait = [&] {
        if (rank % 2 == 0) {
          comm.barrier(all_ranks(6));
        } else {
          comm.post_receive({0, rank, 0}, 0, {1}, at::kFloat)->wait();
        }
      };
      const std::string message = error_of<CommAborted>(wait);
      EXPECT_NE(message.find("rank 0 is on fire"), std::string::npos) << message;
      // Later calls fail as well.
      EXPECT_THROW(comm.send({rank, 0, 0}, 0, at::ones({1})), CommAborted);
      EXPECT_THROW(comm.post_receive({0, rank, 1}, 0, {1}, at::kFloat), CommAborted);
      EXPECT_THROW(comm.barrier({rank}), CommAborted);
      ++stopped;
    });
  }
  std::this_thread::sleep_for(milliseconds(50));
  const auto start = std::chrono::steady_clock::now();
  group.comm(0).abort("rank 0 is on fire");
  group.abort("a later reason");
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(stopped, 5);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST(ThreadComm, AllReduceEqualsPlainSumsBitwise) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const std::int64_t size : {1, 3, 1000, 4099}) {
      const auto inputs = random_inputs(ranks, size, static_cast<std::uint64_t>(ranks));
      const at::Tensor expected = plain_sum(inputs);
      ThreadCommGroup group(ranks);
      on_all_ranks(group, [&](Comm& comm) {
        at::Tensor tensor = inputs[static_cast<std::size_t>(comm.rank())].clone();
        comm.all_reduce_sum(tensor, all_ranks(ranks));
        EXPECT_TRUE(at::equal(tensor, expected)) << ranks << " ranks, size " << size;
      });
    }
  }
}

TEST(ThreadComm, ReducesOverGroupsOfSomeRanksAtTheSameTime) {
  const auto inputs = random_inputs(4, 257, 5);
  ThreadCommGroup group(4);
  on_all_ranks(group, [&](Comm& comm) {
    const std::vector<int> members =
        comm.rank() % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
    for (int i = 0; i < 20; ++i) {
      at::Tensor tensor = inputs[static_cast<std::size_t>(comm.rank())].clone();
      comm.all_reduce_sum(tensor, members);
      EXPECT_TRUE(at::equal(tensor,
                            plain_sum({inputs[static_cast<std::size_t>(members[0])],
                                       inputs[static_cast<std::size_t>(members[1])]})));
    }
  });
}

TEST(ThreadComm, ReduceScatterGivesEachRankItsSlice) {
  const auto inputs = random_inputs(3, 3 * 17, 6);
  const at::Tensor expected = plain_sum(inputs);
  ThreadCommGroup group(3);
  on_all_ranks(group, [&](Comm& comm) {
    at::Tensor input = inputs[static_cast<std::size_t>(comm.rank())].clone();
    const at::Tensor slice = comm.reduce_scatter_sum(input, all_ranks(3));
    input.zero_();  // allowed from here on
    EXPECT_TRUE(at::equal(slice, expected.narrow(0, 17 * comm.rank(), 17)));
  });
  EXPECT_THROW(group.comm(0).reduce_scatter_sum(at::ones({4}), all_ranks(3)), InternalError);
}

TEST(ThreadComm, AllGatherJoinsInRankOrder) {
  const auto inputs = random_inputs(5, 9, 7);
  const at::Tensor expected = at::cat(inputs);
  ThreadCommGroup group(5);
  on_all_ranks(group, [&](Comm& comm) {
    at::Tensor input = inputs[static_cast<std::size_t>(comm.rank())].clone();
    const at::Tensor joined = comm.all_gather(input, all_ranks(5));
    input.zero_();
    EXPECT_TRUE(at::equal(joined, expected));
  });
}

TEST(ThreadComm, BroadcastCopiesTheRootsTensor) {
  const auto inputs = random_inputs(4, 33, 8);
  ThreadCommGroup group(4);
  on_all_ranks(group, [&](Comm& comm) {
    for (int root = 0; root < 4; ++root) {
      at::Tensor tensor = inputs[static_cast<std::size_t>(comm.rank())].clone();
      comm.broadcast(tensor, root, all_ranks(4));
      EXPECT_TRUE(at::equal(tensor, inputs[static_cast<std::size_t>(root)]));
      tensor.zero_();  // everybody has its copy
    }
  });
}

TEST(ThreadComm, CollectivesRefuseUnequalTensors) {
  ThreadCommGroup group(2);
  on_all_ranks(group, [&](Comm& comm) {
    at::Tensor tensor = at::ones({comm.rank() + 1});
    const std::string message =
        error_of<InternalError>([&] { comm.all_reduce_sum(tensor, all_ranks(2)); });
    EXPECT_NE(message.find("rank 1 has Float[2], rank 0 Float[1]"), std::string::npos) << message;
  });
}

// Every rank sends to every other over two channels, in bursts of random length, with collectives
// in between.
TEST(ThreadComm, SurvivesThousandsOfMessages) {
  constexpr int kRanks = 5;
  constexpr int kRounds = 100;
  ThreadCommGroup group(kRanks);
  std::atomic<int> received{0};
  on_all_ranks(group, [&](Comm& comm) {
    for (int round = 0; round < kRounds; ++round) {
      const int burst = 1 + round % 4;
      const auto tag = [&](int source, int i) {
        return static_cast<std::uint64_t>(1000000 * source + 100 * round + i);
      };
      std::vector<std::unique_ptr<PendingReceive>> receives;
      std::vector<float> expected;
      for (int peer = 0; peer < kRanks; ++peer) {
        for (int i = 0; i < burst; ++i) {
          comm.send({comm.rank(), peer, i % 2},
                    tag(comm.rank(), i),
                    at::full({i + 1}, static_cast<float>(100 * comm.rank() + i)));
          receives.push_back(
              comm.post_receive({peer, comm.rank(), i % 2}, tag(peer, i), {i + 1}, at::kFloat));
          expected.push_back(static_cast<float>(100 * peer + i));
        }
      }
      for (std::size_t k = receives.size(); k-- > 0;) {
        EXPECT_EQ(receives[k]->wait()[0].item<float>(), expected[k]);
        ++received;
      }
      at::Tensor one = at::ones({1});
      comm.all_reduce_sum(one, all_ranks(kRanks));
      EXPECT_EQ(one.item<float>(), static_cast<float>(kRanks));
    }
  });
  EXPECT_EQ(received, kRanks * kRanks * (kRounds / 4) * (1 + 2 + 3 + 4));
}

}  // namespace
}  // namespace entrain::engine
