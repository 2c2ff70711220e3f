#include "entrain/engine/profiler/machine.h"

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

// Magnitudes only, wide enough for any machine under any load.
TEST(MeasureMachine, GivesPossibleNumbers) {
  const MachineRates rates = measure_machine(at::kCPU);
  EXPECT_GT(rates.link.bytes_per_second, 1e7);
  EXPECT_LT(rates.link.bytes_per_second, 1e13);
  EXPECT_GT(rates.link.latency.count(), 0);
  EXPECT_LT(rates.link.latency, std::chrono::seconds(1));
  EXPECT_GT(rates.reduce_bytes_per_second, 1e6);
  EXPECT_LT(rates.reduce_bytes_per_second, 1e13);
  EXPECT_GT(rates.optimizer_ns_per_parameter, 1e-3);
  EXPECT_LT(rates.optimizer_ns_per_parameter, 1e3);
}

}  // namespace
}  // namespace entrain::engine
