#include "entrain/core/balance/rivals.h"

#include <gtest/gtest.h>

namespace entrain {
namespace {

BalanceRequest request_of(const std::vector<std::int64_t>& tokens, int ranks, int microbatches) {
  BalanceRequest request;
  request.ranks = ranks;
  request.microbatches = microbatches;
  for (const std::int64_t value : tokens) {
    BalanceRequest::Sample sample;
    sample.tokens = value;
    sample.work[0] = value;
    request.samples.push_back(sample);
  }
  return request;
}

CellOf cells_of(std::string_view name, const BalanceRequest& request) {
  for (const BalanceRival& rival : balance_rivals()) {
    if (rival.name == name) {
      return rival.assign(request);
    }
  }
  return {};
}

// Cells: microbatch · 2 + rank.
TEST(Rivals, DistributeAsTheirSourcesDo) {
  const BalanceRequest request = request_of({9, 1, 8, 2, 7, 3, 6, 4}, 2, 2);
  EXPECT_EQ(cells_of("length-grouped", request), (CellOf{0, 3, 1, 2, 0, 3, 1, 2}));
  EXPECT_EQ(cells_of("lpt-tokens-grouped", request), (CellOf{0, 2, 1, 3, 1, 3, 0, 2}));
  // 9 + 6 + 4 + 1 and 8 + 7 + 3 + 2; then 9 + 1 | 6 + 4 and 8 + 2 | 7 + 3
  EXPECT_EQ(cells_of("lpt-tokens", request), (CellOf{0, 0, 1, 1, 3, 3, 2, 2}));
  EXPECT_EQ(cells_of("veomni", request), (CellOf{0, 1, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(cells_of("megatron", request), (CellOf{0, 0, 1, 1, 2, 2, 3, 3}));
}

TEST(Rivals, PackIntoTheLeastCapacity) {
  // 10 is the least capacity for four packs: 9 + 1, 8 + 2, 7 + 3, 6 + 4
  EXPECT_EQ(cells_of("packed", request_of({9, 1, 8, 2, 7, 3, 6, 4}, 2, 2)),
            (CellOf{0, 0, 1, 1, 2, 2, 3, 3}));
}

TEST(Rivals, LeaveNoMicrobatchEmpty) {
  // By LPT the rank of 90 has no other sample.
  const BalanceRequest request = request_of({90, 1, 8, 2, 7, 3, 6, 4}, 2, 2);
  for (const BalanceRival& rival : balance_rivals()) {
    EXPECT_EQ(balance_violations(request, rival.assign(request)), std::vector<std::string>{})
        << rival.name;
  }
}

TEST(Rivals, SwapWhatHelpsMost) {
  // LPT: 6 + 5 + 4 and 6 + 5; a swap of 6 and 5 leaves 14 and 12, and no other helps.
  const BalanceRequest request = request_of({6, 6, 5, 5, 4}, 2, 1);
  EXPECT_EQ(step_time(request, cells_of("lpt-cost", request)), 15);
  EXPECT_EQ(step_time(request, cells_of("loongforge", request)), 14);
}

TEST(Rivals, RandomOrderIsSeeded) {
  BalanceRequest request = request_of({9, 1, 8, 2, 7, 3, 6, 4}, 2, 2);
  const CellOf first = cells_of("random", request);
  EXPECT_EQ(first, cells_of("random", request));
  request.seed = 5;
  EXPECT_NE(first, cells_of("random", request));
}

}  // namespace
}  // namespace entrain
