#include "entrain/engine/pipeline/unit_tensors.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "entrain/engine/comm/thread_comm.h"

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

TEST(UnitTensors, RefusesTwoTensorsForAUnit) {
  UnitTensors tensors;
  tensors.put({0, 0, 0, 0}, at::ones({1}));
  EXPECT_THROW(tensors.put({0, 0, 0, 0}, at::ones({1})), InternalError);
}

}  // namespace
}  // namespace entrain::engine
