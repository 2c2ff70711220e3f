#include "entrain/core/baselines/min_max_bins.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

double largest_of(const Load& load) {
  double result = 0;
  for (const double value : load) {
    result = std::max(result, value);
  }
  return result;
}

// Largest dimension of load - out + in.
double after(const Load& load, const Load& out, const Load& in) {
  double result = 0;
  for (std::size_t d = 0; d < load.size(); ++d) {
    result = std::max(result, load[d] - out[d] + in[d]);
  }
  return result;
}

double dimension_bound(std::vector<double> values, int num_bins) {
  std::sort(values.begin(), values.end(), std::greater<>());
  const double total = std::accumulate(values.begin(), values.end(), 0.0);
  double bound = std::ceil(total / num_bins);
  const int count = static_cast<int>(values.size());
  for (int k = 0; k * num_bins + 1 <= count; ++k) {
    double sum = 0;
    for (int i = 0; i <= k; ++i) {
      sum += values[at(k * num_bins - i)];
    }
    bound = std::max(bound, sum);
  }
  return bound;
}

double lower_bound_of(const std::vector<Load>& items, int num_bins) {
  double bound = 0;
  for (std::size_t d = 0; d < kLoadDimensions; ++d) {
    std::vector<double> values;
    for (const Load& item : items) {
      values.push_back(item[d]);
    }
    bound = std::max(bound, dimension_bound(std::move(values), num_bins));
  }
  return bound;
}

// Items by falling largest dimension, ties by index.
std::vector<int> falling_items(const std::vector<Load>& items) {
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return largest_of(items[at(a)]) > largest_of(items[at(b)]);
  });
  return order;
}

constexpr Load kNoLoad{};
constexpr Load kEven = {1, 1, 1, 1};

class ExchangeSearch {
 public:
  ExchangeSearch(const std::vector<Load>& items, int num_bins)
      : items_(items),
        load_(at(num_bins)),
        largest_(at(num_bins), 0),
        members_(at(num_bins)),
        rising_(at(num_bins)) {
    for (const Load& item : items) {
      for (std::size_t d = 1; d < item.size(); ++d) {
        dimensions_ = item[d] != 0 ? std::max(dimensions_, d + 1) : dimensions_;
      }
    }
    construct();
  }

  void improve(double bound, std::int64_t budget) {
    Rng rng(0, items_.size());
    while (largest() > bound && looked_at_ < budget) {
      if (!relieve(fullest())) {
        kShake[dimensions_ - 1](*this, rng);
      }
    }
  }

  [[nodiscard]] double largest() const {
    return *std::max_element(largest_.begin(), largest_.end());
  }
  [[nodiscard]] std::vector<int> bin_of() const {
    std::vector<int> result(items_.size());
    for (std::size_t bin = 0; bin < members_.size(); ++bin) {
      for (const int item : members_[bin]) {
        result[at(item)] = static_cast<int>(bin);
      }
    }
    return result;
  }

 private:
  [[nodiscard]] int num_bins() const { return static_cast<int>(members_.size()); }
  [[nodiscard]] int fullest() const {
    return static_cast<int>(std::max_element(largest_.begin(), largest_.end()) - largest_.begin());
  }

  void construct() {
    LoadBins bins(num_bins(), kEven);
    for (const int item : falling_items(items_)) {
      const int bin = bins.add(items_[at(item)]);
      members_[at(bin)].push_back(item);
      change(bin, kNoLoad, items_[at(item)]);
    }
  }

  void change(int bin, const Load& out, const Load& in) {
    for (std::size_t d = 0; d < in.size(); ++d) {
      load_[at(bin)][d] += in[d] - out[d];
    }
    largest_[at(bin)] = largest_of(load_[at(bin)]);
  }

  // Position `i` of bin `a` against position `j` of bin `b`; j == -1 gives the item away.
  void exchange(int a, int i, int b, int j) {
    const int item = members_[at(a)][at(i)];
    const int other = j < 0 ? -1 : members_[at(b)][at(j)];
    const Load& in = other < 0 ? kNoLoad : items_[at(other)];
    change(a, items_[at(item)], in);
    change(b, in, items_[at(item)]);
    if (other < 0) {
      members_[at(a)].erase(members_[at(a)].begin() + i);
      members_[at(b)].push_back(item);
    } else {
      members_[at(a)][at(i)] = other;
      members_[at(b)][at(j)] = item;
    }
    for (std::size_t d = 0; d < kLoadDimensions; ++d) {
      rising_[at(a)][d].clear();
      rising_[at(b)][d].clear();
    }
  }

  // The best exchange of one bin with any other, if the larger of both falls below this bin's.
  bool relieve(int bin) {
    Exchange best{.largest = largest_[at(bin)]};
    for (int other = 0; other < num_bins(); ++other) {
      if (other != bin) {
        looked_at_ +=
            static_cast<std::int64_t>(members_[at(bin)].size() * (members_[at(other)].size() + 1));
        if (may_help(bin, other, best.largest)) {
          kTryExchanges[dimensions_ - 1](*this, bin, other, best);
        }
      }
    }
    if (best.other < 0) {
      return false;
    }
    exchange(bin, best.i, best.other, best.j);
    return true;
  }

  // An item of a bin by its size in one dimension.
  struct Member {
    double size = 0;
    int position = 0;
  };

  // The bin's, by rising size; kept until the bin changes.
  const std::vector<Member>& rising(int bin, std::size_t dimension) {
    std::vector<Member>& result = rising_[at(bin)][dimension];
    if (result.empty()) {
      for (const int item : members_[at(bin)]) {
        result.push_back({items_[at(item)][dimension], static_cast<int>(result.size())});
      }
      std::sort(result.begin(), result.end(), [](const Member& a, const Member& b) {
        return a.size < b.size;
      });
    }
    return result;
  }

  // The larger of two bins has at least half of what both have.
  [[nodiscard]] bool may_help(int bin, int other, double largest) const {
    constexpr double kRounding = 1 + 1e-9;
    for (std::size_t d = 0; d < dimensions_; ++d) {
      if (load_[at(bin)][d] + load_[at(other)][d] > 2 * kRounding * largest) {
        return false;
      }
    }
    return true;
  }

  struct Exchange {
    double largest = 0;  // of both bins after it
    int i = -1;
    int other = -1;
    int j = -1;
  };

  // Runs for every item and bin: only the dimensions that any item has, and only items that are, in
  // the fullest dimension, as large as leaves both bins below the best exchange so far.
  template <std::size_t kDimensions>
  static void try_exchanges(ExchangeSearch& of, int bin, int other, Exchange& best) {
    const std::vector<int>& here = of.members_[at(bin)];
    const std::vector<int>& there = of.members_[at(other)];
    const Load& load = of.load_[at(bin)];
    const auto fullest =
        static_cast<std::size_t>(std::max_element(load.begin(), load.end()) - load.begin());
    const std::vector<Member>& rising = of.rising(other, fullest);
    const int count = static_cast<int>(here.size());
    for (int i = 0; i < count; ++i) {
      Load left{};   // in this bin without the item
      Load added{};  // in the other one with it
      double least = 0;
      for (std::size_t d = 0; d < kDimensions; ++d) {
        const double out = of.items_[at(here[at(i)])][d];
        left[d] = load[d] - out;
        added[d] = of.load_[at(other)][d] + out;
        least = std::max(least, left[d]);
      }
      if (least >= best.largest) {
        continue;
      }
      const auto consider = [&](int j, const Load& in) {
        double largest = 0;
        for (std::size_t d = 0; d < kDimensions; ++d) {
          largest = std::max({largest, left[d] + in[d], added[d] - in[d]});
        }
        const bool earlier = best.other == other && best.i == i && j < best.j;
        if (largest < best.largest || (largest == best.largest && earlier)) {
          best = {largest, i, other, j};
        }
      };
      if (count > 1) {
        consider(-1, kNoLoad);
      }
      auto member = std::partition_point(rising.begin(), rising.end(), [&](const Member& in) {
        return added[fullest] - in.size > best.largest;
      });
      for (; member != rising.end() && left[fullest] + member->size <= best.largest; ++member) {
        consider(member->position, of.items_[at(there[at(member->position)])]);
      }
    }
  }
  static constexpr std::array kTryExchanges = {
      try_exchanges<1>, try_exchanges<2>, try_exchanges<3>, try_exchanges<4>};

  // Random swaps that stay below the fullest bin; one in eight may spoil the pair's balance.
  template <std::size_t kDimensions>
  static void shake(ExchangeSearch& of, Rng& rng) {
    const double limit = of.largest();
    const int tries = 8 * of.num_bins();
    for (int i = 0; i < tries; ++i) {
      const int a = static_cast<int>(rng.below(of.members_.size()));
      const int b = static_cast<int>(rng.below(of.members_.size()));
      const bool any = rng.below(8) == 0;
      if (a == b) {
        continue;
      }
      const int x = static_cast<int>(rng.below(of.members_[at(a)].size()));
      const int y = static_cast<int>(rng.below(of.members_[at(b)].size()));
      const Load& out = of.items_[at(of.members_[at(a)][at(x)])];
      const Load& in = of.items_[at(of.members_[at(b)][at(y)])];
      double most = 0;    // after the swap
      double square = 0;  // of both bins' loads then, and now
      double now = 0;
      for (std::size_t d = 0; d < kDimensions; ++d) {
        const double here = of.load_[at(a)][d];
        const double there = of.load_[at(b)][d];
        const double here_after = here - out[d] + in[d];
        const double there_after = there - in[d] + out[d];
        most = std::max({most, here_after, there_after});
        square += here_after * here_after + there_after * there_after;
        now += here * here + there * there;
      }
      if (most < limit && (any || square < now)) {
        of.exchange(a, x, b, y);
      }
    }
    of.looked_at_ += tries;
  }
  static constexpr std::array kShake = {shake<1>, shake<2>, shake<3>, shake<4>};

  const std::vector<Load>& items_;
  std::vector<Load> load_;
  std::vector<double> largest_;  // [bin] over its dimensions
  std::vector<std::vector<int>> members_;
  std::vector<std::array<std::vector<Member>, kLoadDimensions>> rising_;  // [bin]
  std::size_t dimensions_ = 1;  // those behind are 0 in all items
  std::int64_t looked_at_ = 0;
};

// Depth-first over all placements that beat the best one so far; of bins with equal loads the first
// is tried alone.
class BranchAndBound {
 public:
  BranchAndBound(const std::vector<Load>& items, std::int64_t nodes, MinMaxBins& best)
      : items_(items), order_(falling_items(items)), nodes_(nodes), best_(best) {}

  void run(int num_bins) {
    load_.resize(at(num_bins));
    members_.assign(at(num_bins), 0);
    bin_of_.assign(items_.size(), 0);
    visit(0, num_bins, 0);
    best_.optimal = nodes_ > 0 || best_.largest <= best_.bound;
  }

 private:
  void visit(int depth, int empty, double largest) {
    if (--nodes_ <= 0 || best_.largest <= best_.bound ||
        static_cast<int>(items_.size()) - depth < empty) {
      return;
    }
    if (depth == static_cast<int>(items_.size())) {
      best_.largest = largest;
      best_.bin_of = bin_of_;
      return;
    }
    const int item = order_[at(depth)];
    for (int bin = 0; bin < static_cast<int>(load_.size()); ++bin) {
      const Load before = load_[at(bin)];
      const double candidate = std::max(largest, after(before, kNoLoad, items_[at(item)]));
      if (candidate >= best_.largest || has_twin(bin)) {
        continue;
      }
      for (std::size_t d = 0; d < before.size(); ++d) {
        load_[at(bin)][d] += items_[at(item)][d];
      }
      bin_of_[at(item)] = bin;
      const int opened = members_[at(bin)]++ == 0 ? 1 : 0;
      visit(depth + 1, empty - opened, candidate);
      --members_[at(bin)];
      load_[at(bin)] = before;
    }
  }

  [[nodiscard]] bool has_twin(int bin) const {
    for (int other = 0; other < bin; ++other) {
      if (load_[at(other)] == load_[at(bin)] &&
          (members_[at(other)] == 0) == (members_[at(bin)] == 0)) {
        return true;
      }
    }
    return false;
  }

  const std::vector<Load>& items_;
  std::vector<int> order_;
  std::int64_t nodes_;
  MinMaxBins& best_;
  std::vector<Load> load_;
  std::vector<int> members_;
  std::vector<int> bin_of_;
};

}  // namespace

MinMaxBins min_max_bins(const std::vector<Load>& items, int num_bins, std::int64_t budget) {
  ENTRAIN_INVARIANT(num_bins >= 1 && items.size() >= at(num_bins), "every bin needs an item");
  // Few items: a short search for a start, then all placements.
  constexpr std::size_t kExhaustive = 16;
  constexpr std::int64_t kStartExchanges = 10'000;
  constexpr std::int64_t kNodes = 200'000;
  const bool exhaustive = items.size() <= kExhaustive;
  MinMaxBins result;
  result.bound = lower_bound_of(items, num_bins);
  ExchangeSearch search(items, num_bins);
  search.improve(result.bound, exhaustive ? std::min(budget, kStartExchanges) : budget);
  result.bin_of = search.bin_of();
  result.largest = search.largest();
  result.optimal = result.largest <= result.bound;
  if (!result.optimal && exhaustive) {
    BranchAndBound(items, kNodes, result).run(num_bins);
  }
  return result;
}

}  // namespace entrain
