#include "entrain/engine/profiler/machine.h"

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

TEST(Median, IsTheMiddleWhateverTheOrder) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

// Magnitudes only, wide enough for any machine under any load.
TEST(MeasureMachine, GivesPossibleNumbers) {
  const MachineRates rates = measure_machine();
  EXPECT_GT(rates.copy_bytes_per_second, 1e7);
  EXPECT_LT(rates.copy_bytes_per_second, 1e13);
  EXPECT_GT(rates.reduce_bytes_per_second, 1e6);
  EXPECT_LT(rates.reduce_bytes_per_second, rates.copy_bytes_per_second * 10);
  EXPECT_GT(rates.optimizer_ns_per_parameter, 1e-3);
  EXPECT_LT(rates.optimizer_ns_per_parameter, 1e3);
  EXPECT_GT(rates.handover.count(), 0);
  EXPECT_LT(rates.handover, std::chrono::seconds(1));
}

}  // namespace
}  // namespace entrain::engine
