#include "entrain/core/balance/first_assignment.h"

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

namespace entrain {
namespace {

// Lengths of 1, 2, 4 and 8 tokens, 64 samples; half of them have as much work in an encoder.
BalanceRequest padded_request() {
  BalanceRequest request;
  request.ranks = 4;
  request.microbatches = 4;
  request.num_modules = 2;
  request.padded = true;
  for (int i = 0; i < 64; ++i) {
    BalanceRequest::Sample sample;
    sample.tokens = 1 << (i % 4);
    sample.work[0] = i % 8 < 4 ? 100 * sample.tokens : 0;
    sample.work[1] = 100 * sample.tokens;
    request.samples.push_back(sample);
  }
  return request;
}

TEST(FirstAssignments, PutSimilarLengthsTogetherUnderPadding) {
  const BalanceRequest request = padded_request();
  const std::vector<CellOf> found = first_assignments(request, 1);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_LE(step_time(request, found[0]), perfect_step_time(request) * 5 / 4);
}

// One sample takes its encoder so long that others fill that microbatch for nothing. Levels that
// are even, or fall by a fifth, take 8 % more.
TEST(FirstAssignments, MakeOneMicrobatchLongWhereItsEncoderIsUnderPadding) {
  BalanceRequest request;
  request.ranks = 8;
  request.microbatches = 4;
  request.num_modules = 2;
  request.padded = true;
  Rng rng(1);
  for (int i = 0; i < 256; ++i) {
    const auto length = static_cast<std::int64_t>(100 / (1 + 30 * rng.uniform()));
    request.samples.push_back({{length * 7 / 10, length}, length, 0});
  }
  request.samples[0].work = {300, 300};
  const std::vector<CellOf> found = first_assignments(request, 1);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_LE(step_time(request, found[0]), 780);
}

TEST(FirstAssignments, KeepTheRulesAndBeginWithTheShortest) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    BalanceRequest request = padded_request();
    Rng(seed).shuffle(std::span<BalanceRequest::Sample>(request.samples));
    request.padded = seed % 2 == 0;
    request.layout = seed % 3 == 0 ? Layout::kDdp : Layout::kFsdp;
    request.max_tokens = 32;
    request.max_samples = seed % 5 == 0 ? 5 : 0;
    const std::vector<CellOf> found = first_assignments(request, 8);
    ASSERT_FALSE(found.empty()) << "seed " << seed;
    EXPECT_LE(found.size(), 8U);
    for (const CellOf& cells : found) {
      EXPECT_TRUE(balance_violations(request, cells).empty()) << "seed " << seed;
      EXPECT_LE(step_time(request, found[0]), step_time(request, cells)) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace entrain
