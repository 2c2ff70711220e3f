#include "entrain/engine/comm/torch_errors.h"

#include <new>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

TEST(WithoutTorchErrors, SaysWhatNoMemoryWasForWithoutAStack) {
  constexpr std::int64_t kFarTooMany = std::int64_t{1} << 60;
  const std::string message = error_of<SystemFailure>(
      [&] { without_torch_errors([&] { at::empty({kFarTooMany}, at::kByte); }); });
  EXPECT_NE(message.find("1152921504606846976 bytes"), std::string::npos) << message;
  EXPECT_EQ(message.find("frame #"), std::string::npos) << message;
  EXPECT_EQ(message.find("Exception raised from"), std::string::npos) << message;
}

TEST(WithoutTorchErrors, LeavesOthersAsTheyAre) {
  EXPECT_EQ(without_torch_errors([] { return 7; }), 7);
  EXPECT_EQ(
      error_of<InvalidInput>([] { without_torch_errors([] { throw InvalidInput("as it is"); }); }),
      "as it is");
  EXPECT_NE(error_of<SystemFailure>([] {
              without_torch_errors([] { throw std::bad_alloc(); });
            }).find("out of memory"),
            std::string::npos);
}

}  // namespace
}  // namespace entrain::engine
