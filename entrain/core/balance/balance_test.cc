#include "entrain/core/balance/balance.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "entrain/core/balance/cell_loads.h"
#include "entrain/core/balance/rivals.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

// Few large samples, many small ones; every fourth has no work in the encoder.
BalanceRequest skewed_request(std::uint64_t seed, int count, int ranks, int microbatches) {
  Rng rng(seed);
  BalanceRequest request;
  request.ranks = ranks;
  request.microbatches = microbatches;
  request.num_modules = 2;
  request.seed = seed;
  for (int i = 0; i < count; ++i) {
    BalanceRequest::Sample sample;
    const double size = std::pow(rng.uniform() + 0.01, -1.0);
    sample.tokens = static_cast<std::int64_t>(20 * size) + 1;
    sample.work[0] = rng.below(4) == 0 ? 0 : static_cast<std::int64_t>(1000 * rng.uniform() * size);
    sample.work[1] = 50 * sample.tokens;
    sample.bytes = 3 * sample.tokens;
    request.samples.push_back(sample);
  }
  return request;
}

// The least step of all assignments that keep the rules, by trying every one.
std::optional<std::int64_t> exhaustive(const BalanceRequest& request) {
  std::optional<std::int64_t> best;
  CellOf cells(request.samples.size());
  while (true) {
    if (balance_violations(request, cells).empty()) {
      const std::int64_t time = step_time(request, cells);
      best = std::min(best.value_or(time), time);
    }
    std::size_t digit = 0;
    while (digit < cells.size() && ++cells[digit] == request.num_cells()) {
      cells[digit++] = 0;
    }
    if (digit == cells.size()) {
      return best;
    }
  }
}

std::string message_of(const BalanceRequest& request) {
  try {
    balance(request);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(Balance, IsTheBestOfAllOnTinySteps) {
  int solved = 0;
  int exact = 0;
  int missed = 0;  // nothing found though something fits
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const bool four_cells = seed % 3 != 0;
    BalanceRequest request = skewed_request(seed, four_cells ? 6 : 8, 2, four_cells ? 2 : 1);
    request.search_steps = 10'000;
    request.layout = seed % 2 == 0 ? Layout::kFsdp : Layout::kDdp;
    request.padded = seed % 5 == 0;
    request.max_samples = seed % 7 == 0 ? 5 : 0;
    request.everywhere[0] = seed % 11 == 0;
    std::int64_t longest = 0;
    for (const BalanceRequest::Sample& sample : request.samples) {
      longest = std::max(longest, sample.tokens);
    }
    request.max_tokens = seed % 4 == 1 ? longest * 2 : 0;
    const std::optional<std::int64_t> least = exhaustive(request);
    if (!least) {
      EXPECT_NE(message_of(request), "") << "seed " << seed;
      continue;
    }
    CellOf cells;
    try {
      cells = balance(request);
    } catch (const NothingFits&) {
      ++missed;
      continue;
    }
    EXPECT_TRUE(balance_violations(request, cells).empty()) << "seed " << seed;
    EXPECT_LE(static_cast<double>(step_time(request, cells)), 1.02 * static_cast<double>(*least))
        << "seed " << seed;
    EXPECT_LE(step_time_bound(request), *least) << "seed " << seed;
    exact += step_time(request, cells) == *least ? 1 : 0;
    ++solved;
  }
  EXPECT_GT(solved, 500);
  EXPECT_GT(exact, solved * 98 / 100);
  EXPECT_LE(missed, 3);
}

TEST(Balance, IsNeverWorseThanARival) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    BalanceRequest request = skewed_request(seed, 256, 8, 4);
    request.layout = seed % 2 == 0 ? Layout::kFsdp : Layout::kDdp;
    request.padded = seed % 3 == 0;
    request.search_steps = 20'000;
    if (seed % 4 < 2) {  // alone longer than all others of a rank
      request.samples[7].tokens *= 100;
      request.samples[7].work[1] += 5'000'000;
    }
    const std::int64_t ours = step_time(request, balance(request));
    for (const BalanceRival& rival : balance_rivals()) {
      const CellOf cells = rival.assign(request);
      ASSERT_EQ(cells.size(), request.samples.size());
      EXPECT_LE(ours, step_time(request, cells)) << rival.name << ", seed " << seed;
      EXPECT_LE(step_time_bound(request), step_time(request, cells)) << rival.name;
    }
  }
}

TEST(Balance, GivesTheSameAssignmentAgain) {
  const BalanceRequest request = skewed_request(3, 96, 4, 3);
  EXPECT_EQ(balance(request), balance(request));
}

TEST(Balance, FitsTheLimitsOfTheGivenOrderAndIsNoSlower) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    BalanceRequest request = skewed_request(seed, 8, 2, 2);
    request.search_steps = 100;
    const CellOf drawn = drawn_cells(request);
    limit_as(drawn, request);
    const CellOf cells = balance(request);
    EXPECT_TRUE(balance_violations(request, cells).empty()) << "seed " << seed;
    EXPECT_LE(step_time(request, cells), step_time(request, drawn)) << "seed " << seed;
  }
}

TEST(Balance, KeepsLimitsAndNeedsThatFitTightly) {
  BalanceRequest request = skewed_request(5, 64, 4, 4);
  request.max_samples = 4;  // 16 cells of 4: all of them full
  request.everywhere[0] = true;
  request.search_steps = 5000;
  const CellOf cells = balance(request);
  EXPECT_TRUE(balance_violations(request, cells).empty());
  for (int cell = 0; cell < request.num_cells(); ++cell) {
    EXPECT_EQ(std::count(cells.begin(), cells.end(), cell), 4);
  }
}

TEST(Balance, NamesWhatCannotBe) {
  BalanceRequest request = skewed_request(1, 8, 2, 2);
  request.max_tokens = 1;
  EXPECT_THROW(balance(request), NothingFits);
  EXPECT_NE(message_of(request).find("exceeds a microbatch's limit alone"), std::string::npos);
  request.max_tokens = 0;
  request.max_samples = 1;
  EXPECT_NE(message_of(request).find("8 samples find no place"), std::string::npos);
  request.max_samples = 0;
  request.microbatches = 5;
  EXPECT_THROW(balance(request), InvalidInput);
  request.microbatches = 2;
  for (std::size_t i = 3; i < 8; ++i) {
    request.samples[i].work[0] = 0;
  }
  request.everywhere[0] = true;
  EXPECT_NE(message_of(request).find("have work in module 0"), std::string::npos);
  request.everywhere[0] = false;
  request.samples[2].work[1] = -1;
  EXPECT_NE(message_of(request).find("work in ns of sample 2 is -1"), std::string::npos);
}

TEST(BalanceViolations, NamesTheMicrobatch) {
  BalanceRequest request = skewed_request(1, 4, 2, 1);
  EXPECT_EQ(balance_violations(request, {0, 0, 0, 0}),
            std::vector<std::string>{"microbatch 0 of rank 1 has no sample"});
  EXPECT_EQ(balance_violations(request, {0, 1, 2, 0}).size(), 1U);
  EXPECT_EQ(balance_violations(request, {0, 1}).size(), 1U);
  request.max_samples = 2;
  EXPECT_EQ(balance_violations(request, {0, 1, 1, 1}),
            std::vector<std::string>{"microbatch 0 of rank 1 has 3 samples; allowed are 2"});
}

TEST(StepTime, DependsOnTheLayout) {
  BalanceRequest request;
  request.ranks = 2;
  request.microbatches = 2;
  request.num_modules = 2;
  const std::vector<std::array<std::int64_t, 2>> work{{5, 1}, {1, 7}, {2, 2}, {3, 4}};
  for (const auto& [encoder, llm] : work) {
    BalanceRequest::Sample sample;
    sample.work[0] = encoder;
    sample.work[1] = llm;
    sample.tokens = llm;
    request.samples.push_back(sample);
  }
  const CellOf cells{0, 1, 2, 3};  // rank 0: samples 0 and 2; rank 1: 1 and 3
  EXPECT_EQ(step_time(request, cells), 5 + 7 + 3 + 4);
  request.layout = Layout::kDdp;
  EXPECT_EQ(step_time(request, cells), 1 + 7 + 3 + 4);
  request.microbatches = 1;
  request.padded = true;
  EXPECT_EQ(step_time(request, {0, 1, 0, 1}), 1 + 3 + 2 * 7);
}

TEST(CellLoads, SaysWhatAChangeDoes) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    BalanceRequest request = skewed_request(seed, 30, 1 + static_cast<int>(seed % 5), 3);
    request.layout = seed % 2 == 0 ? Layout::kFsdp : Layout::kDdp;
    request.padded = seed % 3 == 0;
    request.max_samples = 12;
    Rng rng(seed, 7);
    CellLoads loads(request);
    for (int sample = 0; sample < 30; ++sample) {
      loads.place(sample, sample % request.num_cells());
    }
    for (int change = 0; change < 300; ++change) {
      const int sample = static_cast<int>(rng.below(30));
      const int other = static_cast<int>(rng.below(30));
      const int cell = static_cast<int>(rng.below(at(request.num_cells())));
      const int own = loads.cells()[at(sample)];
      const bool swaps = change % 2 == 0;
      if (own == (swaps ? loads.cells()[at(other)] : cell)) {
        continue;
      }
      CellOf after = loads.cells();
      if (swaps) {
        std::swap(after[at(sample)], after[at(other)]);
      } else {
        after[at(sample)] = cell;
      }
      const std::int64_t expected =
          swaps ? loads.swap_change(sample, other) : loads.move_change(sample, cell);
      if (!balance_violations(request, after).empty()) {
        EXPECT_EQ(expected, CellLoads::kRefused);
        continue;
      }
      EXPECT_EQ(loads.step_time() + expected, step_time(request, after)) << "seed " << seed;
      swaps ? loads.swap(sample, other) : loads.move(sample, cell);
      EXPECT_EQ(loads.cells(), after);
      EXPECT_EQ(loads.step_time(), step_time(request, after)) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace entrain
