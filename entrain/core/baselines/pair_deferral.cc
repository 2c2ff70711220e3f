#include "entrain/core/baselines/pair_deferral.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

constexpr int kSteps = 1024;

std::int64_t sum(const std::vector<std::int64_t>& work) {
  return std::accumulate(work.begin(), work.end(), std::int64_t{0});
}

// Which sums, in steps, subsets of some entries can have.
class SubsetSums {
 public:
  explicit SubsetSums(const std::vector<std::int64_t>& work)
      : total_(static_cast<double>(sum(work))) {
    for (const std::int64_t value : work) {
      steps_.push_back(to_steps(value));
    }
    last_.assign(at(std::accumulate(steps_.begin(), steps_.end(), 0) + 1), kUnreached);
    last_[0] = kEmpty;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      for (std::size_t s = last_.size(); s-- > at(steps_[i]);) {
        if (last_[s] == kUnreached && last_[s - at(steps_[i])] != kUnreached) {
          last_[s] = static_cast<int>(i);
        }
      }
    }
  }

  // Rising indices of the subset closest to `target`.
  [[nodiscard]] std::vector<int> closest(std::int64_t target) const {
    const int wanted = to_steps(target);
    int best = 0;
    for (int s = 0; s < static_cast<int>(last_.size()); ++s) {
      if (last_[at(s)] != kUnreached && std::abs(s - wanted) < std::abs(best - wanted)) {
        best = s;
      }
    }
    std::vector<int> result;
    // An entry reached its sum first from sums of the entries before it, so indices fall.
    for (int s = best; last_[at(s)] != kEmpty; s -= steps_[at(result.back())]) {
      result.push_back(last_[at(s)]);
    }
    std::reverse(result.begin(), result.end());
    return result;
  }

 private:
  static constexpr int kUnreached = -2;
  static constexpr int kEmpty = -1;

  [[nodiscard]] int to_steps(std::int64_t work) const {
    return total_ > 0 ? static_cast<int>(static_cast<double>(work) / total_ * kSteps + 0.5) : 0;
  }

  double total_;
  std::vector<int> steps_;  // [entry]
  std::vector<int> last_;   // [sum] the entry that first reached it
};

struct Edge {
  std::int64_t larger = 0;  // V_ij
  std::vector<int> deferred;
};

// Edges [overloaded][underloaded]; an empty set where nothing better exists.
std::vector<std::vector<Edge>> make_edges(const std::vector<std::vector<std::int64_t>>& slots,
                                          const std::vector<std::int64_t>& load,
                                          const std::vector<int>& over,
                                          const std::vector<int>& under) {
  std::vector<std::vector<Edge>> result;
  for (const int i : over) {
    std::vector<Edge>& row = result.emplace_back();
    const SubsetSums sums(slots[at(i)]);
    for (const int j : under) {
      Edge edge{load[at(i)], {}};
      std::vector<int> subset = sums.closest((load[at(i)] - load[at(j)]) / 2);
      std::int64_t moved = 0;
      for (const int entry : subset) {
        moved += slots[at(i)][at(entry)];
      }
      const std::int64_t larger = std::max(load[at(i)] - moved, load[at(j)] + moved);
      if (larger < edge.larger) {
        edge = {larger, std::move(subset)};
      }
      row.push_back(std::move(edge));
    }
  }
  return result;
}

// Matches every overloaded slot above `limit` through edges within it (augmenting paths).
class Matching {
 public:
  Matching(const std::vector<std::vector<Edge>>& edges, std::size_t num_under)
      : edges_(edges), partner_of_under_(num_under, -1) {}

  bool match(const std::vector<std::int64_t>& over_load, std::int64_t limit) {
    std::fill(partner_of_under_.begin(), partner_of_under_.end(), -1);
    limit_ = limit;
    for (std::size_t i = 0; i < over_load.size(); ++i) {
      seen_.assign(partner_of_under_.size(), 0);
      if (over_load[i] > limit && !augment(static_cast<int>(i))) {
        return false;
      }
    }
    return true;
  }

  // [underloaded] position of its overloaded slot; -1: none.
  [[nodiscard]] const std::vector<int>& partner_of_under() const { return partner_of_under_; }

 private:
  bool augment(int i) {
    for (std::size_t j = 0; j < partner_of_under_.size(); ++j) {
      if (seen_[j] != 0 || edges_[at(i)][j].larger > limit_) {
        continue;
      }
      seen_[j] = 1;
      if (partner_of_under_[j] < 0 || augment(partner_of_under_[j])) {
        partner_of_under_[j] = i;
        return true;
      }
    }
    return false;
  }

  const std::vector<std::vector<Edge>>& edges_;
  std::vector<int> partner_of_under_;
  std::vector<char> seen_;
  std::int64_t limit_ = 0;
};

// The matching at the least limit; the largest load is always feasible, with nothing matched.
std::vector<int> bottleneck_match(const std::vector<std::vector<Edge>>& edges,
                                  const std::vector<std::int64_t>& over_load,
                                  std::size_t num_under) {
  std::vector<std::int64_t> limits = over_load;
  for (const std::vector<Edge>& row : edges) {
    for (const Edge& edge : row) {
      limits.push_back(edge.larger);
    }
  }
  std::sort(limits.begin(), limits.end());
  Matching matching(edges, num_under);
  std::size_t low = 0;
  std::size_t high = limits.size() - 1;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (matching.match(over_load, limits[middle])) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  matching.match(over_load, limits[high]);
  return matching.partner_of_under();
}

}  // namespace

std::vector<int> closest_subset(const std::vector<std::int64_t>& work, std::int64_t target) {
  return SubsetSums(work).closest(target);
}

std::vector<SlotPair> pair_slots(const std::vector<std::vector<std::int64_t>>& slots, bool defer) {
  std::vector<std::int64_t> load;
  for (const std::vector<std::int64_t>& slot : slots) {
    load.push_back(sum(slot));
  }
  std::vector<int> order(slots.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(
      order.begin(), order.end(), [&](int a, int b) { return load[at(a)] > load[at(b)]; });
  const auto half = order.begin() + static_cast<std::ptrdiff_t>((order.size() + 1) / 2);
  const std::vector<int> over(order.begin(), half);
  const std::vector<int> under(half, order.end());
  std::vector<SlotPair> result;
  for (const int i : over) {
    result.push_back({i, -1, {}});
  }
  std::vector<char> taken(under.size(), 0);
  if (defer && !under.empty()) {
    std::vector<std::int64_t> over_load;
    for (const int i : over) {
      over_load.push_back(load[at(i)]);
    }
    const std::vector<std::vector<Edge>> edges = make_edges(slots, load, over, under);
    const std::vector<int> partner = bottleneck_match(edges, over_load, under.size());
    for (std::size_t j = 0; j < under.size(); ++j) {
      if (partner[j] >= 0) {
        result[at(partner[j])] = {
            over[at(partner[j])], under[j], edges[at(partner[j])][j].deferred};
        taken[j] = 1;
      }
    }
  }
  auto free_pair = result.begin();
  for (std::size_t j = 0; j < under.size(); ++j) {
    if (taken[j] == 0) {
      free_pair = std::find_if(
          free_pair, result.end(), [](const SlotPair& pair) { return pair.underloaded < 0; });
      free_pair->underloaded = under[j];
    }
  }
  return result;
}

}  // namespace entrain
