#include "entrain/engine/pipeline/unit_tensors.h"

#include <thread>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "entrain/engine/comm/thread_comm.h"
#include "entrain/engine/models/live_bytes.h"

namespace entrain::engine {
namespace {

TEST(UnitTensors, GivesBackWhatWasPutOnce) {
  UnitTensors tensors;
  tensors.put({0, 1, 2, 3}, at::full({1}, 5));
  EXPECT_FALSE(tensors.empty());
  const UnitTensors::Taken taken = tensors.take({0, 1, 2, 3});
  EXPECT_EQ(taken.tensor.item<float>(), 5);
  EXPECT_FALSE(taken.receive.has_value());
  EXPECT_TRUE(tensors.empty());
  EXPECT_THROW(tensors.take({0, 1, 2, 3}), InternalError);
}

TEST(UnitTensors, WaitsForWhatWasPosted) {
  ThreadCommGroup group(2);
  UnitTensors tensors;
  const ChannelKey key{0, 1, 0};
  tensors.post({0, 0, 0, 0}, group.comm(1).post_receive(key, 1, {1}, at::kFloat), 17);
  group.comm(0).send(key, 1, at::full({1}, 4.0F));
  const UnitTensors::Taken taken = tensors.take({0, 0, 0, 0});
  EXPECT_EQ(taken.tensor.item<float>(), 4);
  EXPECT_EQ(taken.receive, 17);
}

// Whose thread frees a message decides in whose books it stands; it must not be a matter of luck.
TEST(UnitTensors, MessagesAreFreedByTheirReceiver) {
  constexpr int kMessages = 2000;
  constexpr std::int64_t kBytes = 64 * 4;
  ThreadCommGroup group(2);
  const ChannelKey key{0, 1, 0};
  std::thread receiver([&] {
    const LiveBytes live;
    for (int i = 0; i < kMessages; ++i) {
      UnitTensors tensors;
      tensors.post({0, 0, 0, 0}, group.comm(1).post_receive(key, 1, {64}, at::kFloat), 0);
      tensors.take({0, 0, 0, 0});
    }
    EXPECT_EQ(live.bytes(), -kMessages * kBytes);
  });
  const LiveBytes live;
  for (int i = 0; i < kMessages; ++i) {
    at::Tensor message = at::empty({64});
    group.comm(0).send(key, 1, std::move(message));
  }
  receiver.join();
  EXPECT_EQ(live.bytes(), kMessages * kBytes);
}

TEST(UnitTensors, CollectivesLeaveNothingInAnyonesBooks) {
  constexpr int kRounds = 500;
  ThreadCommGroup group(2);
  const std::vector<int> both = {0, 1};
  const auto run = [&](int rank) {
    Comm& comm = group.comm(rank);
    const LiveBytes live;
    for (int i = 0; i < kRounds; ++i) {
      at::Tensor tensor = at::ones({64});
      comm.all_reduce_sum(tensor, both);
      comm.broadcast(tensor, 1, both);
      comm.reduce_scatter_sum(tensor, both);
      comm.all_gather(at::ones({32}), both);
    }
    EXPECT_EQ(live.bytes(), 0) << "rank " << rank;
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

TEST(UnitTensors, RefusesTwoTensorsForAUnit) {
  UnitTensors tensors;
  tensors.put({0, 0, 0, 0}, at::ones({1}));
  EXPECT_THROW(tensors.put({0, 0, 0, 0}, at::ones({1})), InternalError);
}

}  // namespace
}  // namespace entrain::engine
