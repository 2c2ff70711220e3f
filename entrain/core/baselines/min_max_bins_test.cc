#include "entrain/core/baselines/min_max_bins.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

namespace entrain {
namespace {

double largest_load(const std::vector<Load>& items, const std::vector<int>& bin_of, int num_bins) {
  std::vector<Load> loads(static_cast<std::size_t>(num_bins));
  double largest = 0;
  for (std::size_t item = 0; item < items.size(); ++item) {
    Load& load = loads[static_cast<std::size_t>(bin_of[item])];
    for (std::size_t d = 0; d < load.size(); ++d) {
      load[d] += items[item][d];
      largest = std::max(largest, load[d]);
    }
  }
  return largest;
}

bool all_used(const std::vector<int>& bin_of, int num_bins) {
  for (int bin = 0; bin < num_bins; ++bin) {
    if (std::find(bin_of.begin(), bin_of.end(), bin) == bin_of.end()) {
      return false;
    }
  }
  return true;
}

// Every placement with an item in every bin.
double exhaustive_min_max(const std::vector<Load>& items, int num_bins) {
  std::vector<int> bin_of(items.size(), 0);
  double best = std::numeric_limits<double>::infinity();
  while (true) {
    if (all_used(bin_of, num_bins)) {
      best = std::min(best, largest_load(items, bin_of, num_bins));
    }
    std::size_t i = 0;
    while (i < bin_of.size() && ++bin_of[i] == num_bins) {
      bin_of[i++] = 0;
    }
    if (i == bin_of.size()) {
      return best;
    }
  }
}

std::vector<Load> random_items(Rng& rng, std::size_t count, bool heavy_tail) {
  std::vector<Load> items(count);
  for (Load& item : items) {
    for (std::size_t d = 0; d < 2; ++d) {
      item[d] = static_cast<double>(rng.below(40));
      if (heavy_tail && rng.below(8) == 0) {
        item[d] *= 20;
      }
    }
  }
  return items;
}

// The search of more than 16 items as its header says it, every exchange looked at.
class FullScan {
 public:
  FullScan(const std::vector<Load>& items, int num_bins)
      : items_(items), bins_(static_cast<std::size_t>(num_bins)) {
    std::vector<std::size_t> order(items.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return most(items[a]) > most(items[b]);
    });
    LoadBins greedy(num_bins, {1, 1, 1, 1});
    for (const std::size_t item : order) {
      bins_[static_cast<std::size_t>(greedy.add(items[item]))].push_back(item);
    }
  }

  // Largest load after about `budget` exchanges; stops at `bound`.
  double run(double bound, std::size_t budget) {
    Rng rng(0, items_.size());
    std::size_t looked_at = 0;
    while (largest() > bound && looked_at < budget) {
      const std::size_t full = fullest();
      for (std::size_t other = 0; other < bins_.size(); ++other) {
        looked_at += other == full ? 0 : bins_[full].size() * (bins_[other].size() + 1);
      }
      if (!relieve(full)) {
        shake(rng);
        looked_at += 8 * bins_.size();
      }
    }
    return largest();
  }

 private:
  using Bin = std::vector<std::size_t>;

  static double most(const Load& load) { return *std::max_element(load.begin(), load.end()); }
  [[nodiscard]] Load load_of(const Bin& bin) const {
    Load load{};
    for (const std::size_t item : bin) {
      for (std::size_t d = 0; d < load.size(); ++d) {
        load[d] += items_[item][d];
      }
    }
    return load;
  }
  [[nodiscard]] double largest() const { return most(load_of(bins_[fullest()])); }
  [[nodiscard]] std::size_t fullest() const {
    std::size_t full = 0;
    for (std::size_t bin = 1; bin < bins_.size(); ++bin) {
      full = most(load_of(bins_[bin])) > most(load_of(bins_[full])) ? bin : full;
    }
    return full;
  }
  // Position `i` against position `j`, or given away where that is behind the last.
  static void exchange(Bin& a, std::size_t i, Bin& b, std::size_t j) {
    if (j < b.size()) {
      std::swap(a[i], b[j]);
    } else {
      b.push_back(a[i]);
      a.erase(a.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  bool relieve(std::size_t full) {
    double best = most(load_of(bins_[full]));
    std::array<std::size_t, 3> found{full, 0, 0};  // bin, i, j
    for (std::size_t other = 0; other < bins_.size(); ++other) {
      for (std::size_t i = 0; other != full && i < bins_[full].size(); ++i) {
        // To give an item away comes first among equals.
        for (std::size_t k = bins_[full].size() > 1 ? 0 : 1; k <= bins_[other].size(); ++k) {
          const std::size_t j = k == 0 ? bins_[other].size() : k - 1;
          Bin a = bins_[full];
          Bin b = bins_[other];
          exchange(a, i, b, j);
          const double larger = std::max(most(load_of(a)), most(load_of(b)));
          if (larger < best) {
            best = larger;
            found = {other, i, j};
          }
        }
      }
    }
    if (found[0] != full) {
      exchange(bins_[full], found[1], bins_[found[0]], found[2]);
    }
    return found[0] != full;
  }

  void shake(Rng& rng) {
    const double limit = largest();
    for (std::size_t i = 0; i < 8 * bins_.size(); ++i) {
      Bin& a = bins_[rng.below(bins_.size())];
      Bin& b = bins_[rng.below(bins_.size())];
      const bool any = rng.below(8) == 0;
      if (&a == &b) {
        continue;
      }
      const std::size_t x = rng.below(a.size());
      const std::size_t y = rng.below(b.size());
      const double before = squares(a) + squares(b);
      exchange(a, x, b, y);
      const double larger = std::max(most(load_of(a)), most(load_of(b)));
      if (larger >= limit || (!any && squares(a) + squares(b) >= before)) {
        exchange(a, x, b, y);
      }
    }
  }
  [[nodiscard]] double squares(const Bin& bin) const {
    const Load load = load_of(bin);
    return std::inner_product(load.begin(), load.end(), load.begin(), 0.0);
  }

  const std::vector<Load>& items_;
  std::vector<Bin> bins_;
};

TEST(MinMaxBins, ExchangesAsAFullScanDoes) {
  Rng rng(17, 3);
  for (int i = 0; i < 300; ++i) {
    const auto num_bins = static_cast<int>(2 + rng.below(6));
    const std::vector<Load> items = random_items(rng, 17 + rng.below(24), i % 2 == 0);
    const std::size_t budget = 200 + rng.below(4000);
    const MinMaxBins result = min_max_bins(items, num_bins, static_cast<std::int64_t>(budget));
    ASSERT_EQ(result.largest, FullScan(items, num_bins).run(result.bound, budget)) << "case " << i;
  }
}

TEST(MinMaxBins, FindsTheOptimumOfTinyInstances) {
  Rng rng(17, 1);
  for (int i = 0; i < 1000; ++i) {
    const auto num_bins = static_cast<int>(1 + rng.below(4));
    const auto count = static_cast<std::size_t>(num_bins) + static_cast<std::size_t>(rng.below(4));
    const std::vector<Load> items = random_items(rng, count, i % 2 == 0);
    const MinMaxBins result = min_max_bins(items, num_bins, 100'000);
    const double least = exhaustive_min_max(items, num_bins);
    ASSERT_EQ(result.largest, least) << "case " << i;
    ASSERT_TRUE(result.optimal) << "case " << i;
    ASSERT_LE(result.bound, least) << "case " << i;
    ASSERT_EQ(largest_load(items, result.bin_of, num_bins), result.largest) << "case " << i;
    ASSERT_TRUE(all_used(result.bin_of, num_bins)) << "case " << i;
  }
}

TEST(MinMaxBins, MeetsTheBoundOfPairs) {
  // Five items of 10 in four bins: two share one.
  const std::vector<Load> items(5, Load{10, 1});
  const MinMaxBins result = min_max_bins(items, 4, 1000);
  EXPECT_EQ(result.bound, 20);
  EXPECT_EQ(result.largest, 20);
  EXPECT_TRUE(result.optimal);
}

TEST(MinMaxBins, ComesNearTheBoundOfLargeInstances) {
  Rng rng(17, 2);
  std::vector<Load> items(512);
  for (Load& item : items) {
    item = {static_cast<double>(1000 + rng.below(1000)), static_cast<double>(rng.below(3000))};
  }
  const MinMaxBins result = min_max_bins(items, 128, 1'000'000);
  EXPECT_GE(result.largest, result.bound);
  EXPECT_LE(result.largest, 1.05 * result.bound);
  EXPECT_EQ(largest_load(items, result.bin_of, 128), result.largest);
  EXPECT_TRUE(all_used(result.bin_of, 128));
}

TEST(MinMaxBins, GivesEveryBinAnItemWithoutWork) {
  EXPECT_TRUE(all_used(min_max_bins(std::vector<Load>(6), 6, 1000).bin_of, 6));
}

}  // namespace
}  // namespace entrain
