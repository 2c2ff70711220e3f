#include "entrain/core/assigner/balance_replicas.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

constexpr std::int64_t kMostSwaps = 20'000'000;
constexpr double kLeastGainOfSquares =
    1e-12;  // of the squares; keeps rounding from going in circles

class ReplicaBalancer {
 public:
  ReplicaBalancer(const std::vector<std::vector<double>>& shares, int replicas)
      : shares_(shares),
        num_dimensions_(shares.front().size()),
        load_(at(replicas), std::vector<double>(num_dimensions_, 0.0)),
        count_(at(replicas), 0),
        replica_of_(shares.size(), 0) {}

  void construct() {
    for (const int sample : falling_samples()) {
      int best = 0;
      double least = growth(0, sample);
      for (int replica = 1; replica < num_replicas(); ++replica) {
        const double candidate = growth(replica, sample);
        if (candidate < least || (candidate <= least && count_[at(replica)] < count_[at(best)])) {
          best = replica;
          least = candidate;
        }
      }
      replica_of_[at(sample)] = best;
      add(best, sample, 1.0);
    }
  }

  void improve() {
    bool improved = true;
    while (improved && looked_at_ < kMostSwaps) {
      improved = false;
      for (int a = 0; a < num_samples() && looked_at_ < kMostSwaps; ++a) {
        improved = move(a) || improved;
        for (int b = a + 1; b < num_samples(); ++b) {
          improved = swap(a, b) || improved;
        }
        looked_at_ += num_samples() - a;
      }
    }
  }

  [[nodiscard]] std::vector<std::vector<int>> result() const {
    std::vector<std::vector<int>> samples(load_.size());
    for (int sample = 0; sample < num_samples(); ++sample) {
      samples[at(replica_of_[at(sample)])].push_back(sample);
    }
    return samples;
  }

 private:
  [[nodiscard]] int num_replicas() const { return static_cast<int>(load_.size()); }
  [[nodiscard]] int num_samples() const { return static_cast<int>(shares_.size()); }

  [[nodiscard]] std::vector<int> falling_samples() const {
    std::vector<double> total;
    for (const std::vector<double>& share : shares_) {
      total.push_back(std::accumulate(share.begin(), share.end(), 0.0));
    }
    std::vector<int> order(shares_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(
        order.begin(), order.end(), [&](int a, int b) { return total[at(a)] > total[at(b)]; });
    return order;
  }

  [[nodiscard]] double growth(int replica, int sample) const {
    double sum = 0;
    for (std::size_t d = 0; d < num_dimensions_; ++d) {
      const double share = shares_[at(sample)][d];
      sum += share * (2 * load_[at(replica)][d] + share);
    }
    return sum;
  }

  void add(int replica, int sample, double sign) {
    for (std::size_t d = 0; d < num_dimensions_; ++d) {
      load_[at(replica)][d] += sign * shares_[at(sample)][d];
    }
    count_[at(replica)] += sign > 0 ? 1 : -1;
  }

  bool move(int sample) {
    const int from = replica_of_[at(sample)];
    for (int to = 0; to < num_replicas() && count_[at(from)] > 1; ++to) {
      double change = 0;
      for (std::size_t d = 0; d < num_dimensions_; ++d) {
        const double share = shares_[at(sample)][d];
        change += 2 * share * (load_[at(to)][d] - load_[at(from)][d] + share);
      }
      if (to != from && change < -kLeastGainOfSquares) {
        add(from, sample, -1.0);
        add(to, sample, 1.0);
        replica_of_[at(sample)] = to;
        return true;
      }
    }
    return false;
  }

  bool swap(int a, int b) {
    const int from = replica_of_[at(a)];
    const int to = replica_of_[at(b)];
    if (from == to) {
      return false;
    }
    double change = 0;
    for (std::size_t d = 0; d < num_dimensions_; ++d) {
      const double share = shares_[at(a)][d] - shares_[at(b)][d];
      change += 2 * share * (load_[at(to)][d] - load_[at(from)][d] + share);
    }
    if (change >= -kLeastGainOfSquares) {
      return false;
    }
    add(from, a, -1.0);
    add(to, b, -1.0);
    add(to, a, 1.0);
    add(from, b, 1.0);
    replica_of_[at(a)] = to;
    replica_of_[at(b)] = from;
    return true;
  }

  const std::vector<std::vector<double>>& shares_;
  std::size_t num_dimensions_;
  std::vector<std::vector<double>> load_;  // [replica][dimension]
  std::vector<int> count_;                 // [replica] samples
  std::vector<int> replica_of_;            // [sample]
  std::int64_t looked_at_ = 0;
};

}  // namespace

std::vector<std::vector<int>> balance_replicas(const std::vector<std::vector<double>>& shares,
                                               int replicas) {
  ReplicaBalancer balancer(shares, replicas);
  balancer.construct();
  balancer.improve();
  return balancer.result();
}

}  // namespace entrain
