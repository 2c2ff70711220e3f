#include "entrain/core/cost/dtype.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

TEST(DtypeBytes, KnowsTheFormatsByName) {
  EXPECT_EQ(dtype_bytes("float32", "p"), 4);
  EXPECT_EQ(dtype_bytes("bfloat16", "p"), 2);
  EXPECT_EQ(dtype_bytes("float16", "p"), 2);
  EXPECT_EQ(dtype_bytes("float64", "p"), 8);
  try {
    dtype_bytes("int3", "p.json");
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_EQ(std::string(error.what()),
              "p.json: dtype 'int3' given; allowed: float32, bfloat16, float16, float64");
  }
}

}  // namespace
}  // namespace entrain
