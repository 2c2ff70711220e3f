#include "entrain/engine/comm/waits.h"

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

TEST(Waits, TheChainEndsAtTheRankThatDoesNotWait) {
  const std::map<int, Wait> waits = {{0, {1, "message 7"}}, {2, {0, "barrier"}}, {5, {2, "sum"}}};
  EXPECT_EQ(end_of_waits(waits, 2),
            "rank 2 waits for rank 0 (barrier); rank 0 waits for rank 1 (message 7); rank 1 is not "
            "known to wait");
  EXPECT_EQ(end_of_waits(waits, 1), "rank 1 is not known to wait");
}

TEST(Waits, ACircleIsOne) {
  const std::map<int, Wait> waits = {{0, {1, "a"}}, {1, {2, "b"}}, {2, {1, "c"}}};
  EXPECT_EQ(
      end_of_waits(waits, 0),
      "rank 0 waits for rank 1 (a); rank 1 waits for rank 2 (b); rank 2 waits for rank 1 (c); "
      "they wait in a cycle");
}

}  // namespace
}  // namespace entrain::engine
