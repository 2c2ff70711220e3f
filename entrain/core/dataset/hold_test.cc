#include "entrain/core/dataset/hold.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

std::vector<int> drawn_rows(int count) {
  std::vector<int> rows(at(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

std::int64_t work_of(std::span<const int> rows, std::span<const std::int64_t> weights) {
  std::int64_t work = 0;
  for (const int row : rows) {
    work += weights[at(row)];
  }
  return work;
}

// What every step waits for: its heaviest sample.
std::int64_t waits(std::span<const int> rows, int steps, std::span<const std::int64_t> weights) {
  const std::size_t batch = rows.size() / at(steps);
  std::int64_t sum = 0;
  for (std::size_t first = 0; first < rows.size(); first += batch) {
    std::int64_t heaviest = 0;
    for (const int row : rows.subspan(first, batch)) {
      heaviest = std::max(heaviest, weights[at(row)]);
    }
    sum += heaviest;
  }
  return sum;
}

TEST(HoldOversized, LeavesTheOrderWhereNothingIsOversized) {
  const std::vector<std::int64_t> weights = {1, 2, 3, 4, 4, 3, 2, 1};
  const std::vector<int> rows = {7, 2, 5, 0, 1, 6, 3, 4};
  EXPECT_EQ(hold_oversized(rows, 4, weights), rows);
  EXPECT_EQ(hold_oversized(rows, 1, std::vector<std::int64_t>(8, 0)), rows);
  EXPECT_EQ(hold_oversized(rows, 2, std::vector<std::int64_t>(8, 0)), rows);
  EXPECT_TRUE(hold_oversized({}, 3, {}).empty());
}

// By hand: 28 samples of 1 and four of 20 make steps of 27; with two of 20 a step has 46, with
// three 65, more than twice the mean.
TEST(HoldOversized, GathersOversizedSamplesUpToTwiceTheMeanWork) {
  std::vector<std::int64_t> weights(32, 1);
  for (const int row : {3, 9, 22, 24}) {
    weights[at(row)] = 20;
  }
  std::vector<int> expected = drawn_rows(32);
  std::swap(expected[0], expected[9]);    // step 0 gets 9 for its first ordinary sample
  std::swap(expected[16], expected[24]);  // step 2 gets 24
  EXPECT_EQ(hold_oversized(drawn_rows(32), 4, weights), expected);
}

// By hand: steps of 950. Step 1 has 1,680 and may have 1,900, too little for another oversized one.
TEST(HoldOversized, LeavesASampleNearTheLimitToItself) {
  std::vector<std::int64_t> weights(30, 20);
  weights[4] = 400;
  weights[12] = 1500;
  weights[25] = 410;
  std::vector<int> expected = drawn_rows(30);
  std::swap(expected[4], expected[20]);
  EXPECT_EQ(hold_oversized(drawn_rows(30), 3, weights), expected);
}

// An ordinary sample that makes room is one of the heaviest, and goes where an oversized one was.
TEST(HoldOversized, MovesTheHeaviestOrdinarySamplesToMakeRoom) {
  std::vector<std::int64_t> weights(32, 10);
  weights[1] = 12;
  weights[3] = 70;
  weights[9] = 60;
  const std::vector<int> rows = hold_oversized(drawn_rows(32), 4, weights);
  std::vector<int> expected = drawn_rows(32);
  std::swap(expected[1], expected[9]);
  EXPECT_EQ(rows, expected);
}

TEST(HoldOversized, KeepsSamplesAndPlacesAndWaitsForLess) {
  constexpr int kCases = 2000;
  constexpr std::int64_t kLevels[] = {20, 60, 300, 2000};
  std::int64_t waited = 0;
  std::int64_t waited_held = 0;
  Rng rng(11);
  for (int number = 0; number < kCases; ++number) {
    SCOPED_TRACE(number);  // of seed 11
    const int steps = 1 + static_cast<int>(rng.below(6));
    const int batch = 1 + static_cast<int>(rng.below(40));
    std::vector<std::int64_t> weights(at(steps * batch));
    const std::uint64_t tail = rng.below(12);
    for (std::int64_t& weight : weights) {
      weight = static_cast<std::int64_t>(rng.below(10));
      weight += rng.below(20) < tail ? kLevels[rng.below(4)] : 0;
    }
    std::vector<int> rows = drawn_rows(steps * batch);
    rng.shuffle(std::span<int>(rows));
    const std::vector<int> held = hold_oversized(rows, steps, weights);
    ASSERT_TRUE(std::is_permutation(held.begin(), held.end(), rows.begin(), rows.end()));
    const std::int64_t mean = work_of(rows, weights) / steps;
    for (std::size_t place = 0; place < rows.size(); ++place) {
      const std::size_t step = place / at(batch);
      const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(step * at(batch));
      const bool same_step = std::find(begin, begin + batch, held[place]) != begin + batch;
      ASSERT_TRUE(!same_step || held[place] == rows[place]) << "moved within step " << step;
    }
    for (int step = 0; step < steps; ++step) {
      const auto members = std::span<const int>(held).subspan(at(step * batch), at(batch));
      std::int64_t heaviest = 0;
      for (const int row : members) {
        heaviest = std::max(heaviest, weights[at(row)]);
      }
      EXPECT_LE(work_of(members, weights), 2 * mean + heaviest + steps);
    }
    waited += waits(rows, steps, weights);
    waited_held += waits(held, steps, weights);
  }
  EXPECT_LT(static_cast<double>(waited_held), 0.8 * static_cast<double>(waited));
}

}  // namespace
}  // namespace entrain
