#include "entrain/engine/models/device.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

namespace entrain::engine {
namespace {

TEST(DeviceOf, RefusesWhatIsNoDevice) {
  EXPECT_TRUE(device_of("cpu").is_cpu());
  EXPECT_TRUE(device_of("cpu", 7).is_cpu());
  EXPECT_THROW(device_of("tpu"), InvalidInput);
  EXPECT_THROW(device_of(""), InvalidInput);
  EXPECT_THROW(device_of("cuda:1"), InvalidInput) << "kinds, not numbers";
}

TEST(DeviceOf, RanksTakeGpusInTurn) {
  if (!at::hasCUDA()) {
    EXPECT_THROW(device_of("cuda"), SystemFailure);
    GTEST_SKIP() << "this torch has no CUDA";
  }
  const int count = static_cast<int>(at::getNumGPUs());
  if (count == 0) {
    EXPECT_THROW(device_of("cuda"), SystemFailure);
    GTEST_SKIP() << "no GPU";
  }
  EXPECT_EQ(device_of("cuda", 0), at::Device(at::kCUDA, 0));
  EXPECT_EQ(device_of("cuda", count), at::Device(at::kCUDA, 0));
  EXPECT_EQ(device_of("cuda", count - 1).index(), count - 1);
}

}  // namespace
}  // namespace entrain::engine
