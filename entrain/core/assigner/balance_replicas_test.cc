#include "entrain/core/assigner/balance_replicas.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

namespace entrain {
namespace {

std::vector<std::vector<double>> replica_loads_of(const std::vector<std::vector<double>>& shares,
                                                  const std::vector<std::vector<int>>& replicas) {
  std::vector<std::vector<double>> loads;
  for (const std::vector<int>& samples : replicas) {
    std::vector<double>& load = loads.emplace_back(shares.front().size(), 0.0);
    for (const int sample : samples) {
      for (std::size_t d = 0; d < load.size(); ++d) {
        load[d] += shares[static_cast<std::size_t>(sample)][d];
      }
    }
  }
  return loads;
}

TEST(BalanceReplicas, EvensOutBothDimensions) {
  // Each replica needs one sample of each kind.
  const std::vector<std::vector<double>> shares = {{4, 0}, {4, 0}, {0, 4}, {0, 4}};
  for (const std::vector<double>& load : replica_loads_of(shares, balance_replicas(shares, 2))) {
    EXPECT_EQ(load, (std::vector<double>{4, 4}));
  }
}

TEST(BalanceReplicas, SwapsWhereTheFirstDealIsUneven) {
  // Longest first gives 8 + 5 + 4 = 17 and 7 + 6 = 13; 8 + 7 and 6 + 5 + 4 are even.
  const std::vector<std::vector<double>> shares = {{8}, {7}, {6}, {5}, {4}};
  EXPECT_EQ(replica_loads_of(shares, balance_replicas(shares, 2)),
            (std::vector<std::vector<double>>{{15}, {15}}));
}

TEST(BalanceReplicas, LeavesNoSwapThatHelps) {
  Rng rng(21, 1);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::vector<double>> shares(12 + rng.below(20), std::vector<double>(2));
    for (std::vector<double>& share : shares) {
      share = {rng.uniform(), rng.uniform()};
    }
    const std::vector<std::vector<int>> result = balance_replicas(shares, 3);
    const std::vector<std::vector<double>> loads = replica_loads_of(shares, result);
    std::size_t count = 0;
    for (const std::vector<int>& samples : result) {
      count += samples.size();
    }
    ASSERT_EQ(count, shares.size());
    for (std::size_t r = 0; r < 3; ++r) {
      for (std::size_t s = r + 1; s < 3; ++s) {
        for (const int a : result[r]) {
          for (const int b : result[s]) {
            double before = 0;
            double after = 0;
            for (std::size_t d = 0; d < 2; ++d) {
              const double moved =
                  shares[static_cast<std::size_t>(a)][d] - shares[static_cast<std::size_t>(b)][d];
              before += loads[r][d] * loads[r][d] + loads[s][d] * loads[s][d];
              after += (loads[r][d] - moved) * (loads[r][d] - moved) +
                       (loads[s][d] + moved) * (loads[s][d] + moved);
            }
            ASSERT_GE(after, before - 1e-9) << "case " << i;
          }
        }
      }
    }
  }
}

TEST(BalanceReplicas, GivesEveryReplicaASample) {
  for (const std::vector<int>& samples :
       balance_replicas(std::vector<std::vector<double>>(5, {0.0, 0.0}), 5)) {
    EXPECT_EQ(samples.size(), 1U);
  }
}

}  // namespace
}  // namespace entrain
