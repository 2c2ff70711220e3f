#include "entrain/core/balance/similar_runs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

class SimilarRuns {
 public:
  explicit SimilarRuns(const BalanceRequest& request)
      : request_(request), encoders_(request.num_modules - 1) {
    order_.resize(request.samples.size());
    std::iota(order_.begin(), order_.end(), 0);
    const auto llm = [&](int sample) { return request.samples[at(sample)].work[at(encoders_)]; };
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return llm(a) > llm(b); });
    for (const int sample : order_) {
      const BalanceRequest::Sample& what = request.samples[at(sample)];
      Item item{{}, static_cast<double>(llm(sample)), what.tokens, what.bytes};
      for (int module = 0; module < encoders_; ++module) {
        item.encoders[at(module)] = static_cast<double>(what.work[at(module)]);
        share_[at(module)] += item.encoders[at(module)] / request.num_cells();
      }
      mean_ += item.llm / request.num_cells();
      items_.push_back(item);
    }
    mean_ = std::max(mean_, 1.0);
    cells_.resize(order_.size());
    next_.resize(order_.size() + 1);
  }

  // How runs are cut: no cell of a microbatch computes more than its level of LLM work, unless its
  // longest sample does alone. No cell has more than `slack` of an even share of an encoder's work
  // or, with `as_longest`, than that of its microbatch's longest sample, but for one sample.
  struct Way {
    std::vector<double> levels;  // [microbatch]
    double slack;
    bool as_longest;
  };

  // The step's time if it is cut in this way; nothing where the cells do not suffice.
  std::optional<double> time_of(const Way& way) {
    return fill(way) ? std::optional<double>(time_) : std::nullopt;
  }

  // A cell for every sample, or empty where the cells do not suffice.
  CellOf run(const Way& way) {
    CellOf result;
    if (fill(way)) {
      result.resize(order_.size());
      for (std::size_t place = 0; place < order_.size(); ++place) {
        result[at(order_[place])] = cells_[place];
      }
    }
    return result;
  }

  // `way` with the lowest levels, `growth` of the one before each, for which the cells suffice.
  // Empty levels where none is found.
  Way lowest(double growth, double slack, bool as_longest) {
    constexpr double kRaise = 1.25;
    constexpr int kMostRaises = 8;
    constexpr int kHalvings = 6;
    Way way{std::vector<double>(at(request_.microbatches)), slack, as_longest};
    const auto fits = [&](double level) {
      for (double& each : way.levels) {
        each = level;
        level *= growth;
      }
      return fill(way);
    };
    double high = mean_;
    for (int raise = 0; !fits(high); ++raise) {
      if (raise == kMostRaises) {
        return {};
      }
      high *= kRaise;
    }
    double low = high / kRaise;
    for (int halving = 0; halving < kHalvings; ++halving) {
      const double middle = (low + high) / 2;
      (fits(middle) ? high : low) = middle;
    }
    fits(high);
    return way;
  }

 private:
  using Works = std::array<double, kMaxBalanceModules>;

  struct Item {
    Works encoders{};
    double llm = 0;
    std::int64_t tokens = 0;
    std::int64_t bytes = 0;
  };

  bool fill(const Way& way) {
    std::iota(next_.begin(), next_.end(), 0);
    left_ = static_cast<int>(order_.size());
    time_ = 0;
    rank_times_.assign(at(request_.ranks), 0);
    for (int microbatch = 0; microbatch < request_.microbatches; ++microbatch) {
      const Item& longest = items_[at(next_[0])];
      const double level = std::max(way.levels[at(microbatch)], longest.llm);
      Works room{};
      for (int module = 0; module < encoders_; ++module) {
        room[at(module)] =
            way.as_longest ? std::max(way.slack * share_[at(module)], longest.encoders[at(module)])
                           : way.slack * share_[at(module)] * level / mean_;
      }
      longest_ = {};
      for (int rank = 0; rank < request_.ranks; ++rank) {
        fill_cell(microbatch * request_.ranks + rank, level, room);
      }
      time_ += std::accumulate(longest_.begin(), longest_.end(), 0.0);
    }
    if (request_.layout == Layout::kDdp) {
      time_ = *std::max_element(rank_times_.begin(), rank_times_.end());
    }
    return left_ == 0;
  }

  // Takes the longest sample left and others as they follow, but leaves one for each later cell.
  void fill_cell(int cell, double level, const Works& room) {
    constexpr int kMostPassed = 32;
    const double llm = items_[at(next_[0])].llm;
    const double most = most_samples(items_[at(next_[0])], level, request_.num_cells() - cell - 1);
    Works sums{};
    std::int64_t bytes = 0;
    int taken = 0;
    int passed = 0;
    int before = 0;  // its next_ is the place looked at
    while (taken + 1 <= most || taken == 0) {
      const int place = next_[at(before)];
      if (place == std::ssize(order_) || passed == kMostPassed) {
        break;
      }
      const Item& item = items_[at(place)];
      if (taken > 0 && !has_room(item, sums, bytes, room)) {
        before = place + 1;
        ++passed;
        continue;
      }
      for (int module = 0; module < encoders_; ++module) {
        sums[at(module)] += item.encoders[at(module)];
      }
      bytes += item.bytes;
      cells_[at(place)] = cell;
      next_[at(before)] = next_[at(place + 1)];
      ++taken;
      --left_;
    }
    for (int module = 0; module < encoders_; ++module) {
      longest_[at(module)] = std::max(longest_[at(module)], sums[at(module)]);
    }
    longest_[at(encoders_)] = std::max(longest_[at(encoders_)], taken * llm);
    rank_times_[at(cell % request_.ranks)] +=
        std::accumulate(sums.begin(), sums.end(), taken * llm);
  }

  // So many of no more than this one's length, with one left for each of `after` cells.
  [[nodiscard]] double most_samples(const Item& longest, double level, int after) const {
    double most = std::min(level / std::max(1.0, longest.llm), static_cast<double>(left_ - after));
    if (request_.max_tokens > 0 && longest.tokens > 0) {
      most = std::min(most, static_cast<double>(request_.max_tokens / longest.tokens));
    }
    return request_.max_samples > 0 ? std::min(most, static_cast<double>(request_.max_samples))
                                    : most;
  }

  [[nodiscard]] bool has_room(const Item& item,
                              const Works& sums,
                              std::int64_t bytes,
                              const Works& room) const {
    for (int module = 0; module < encoders_; ++module) {
      const double more = item.encoders[at(module)];
      if (more > 0 && sums[at(module)] + more > room[at(module)]) {
        return false;
      }
    }
    return request_.max_bytes == 0 || bytes + item.bytes <= request_.max_bytes;
  }

  const BalanceRequest& request_;
  int encoders_;
  std::vector<int> order_;   // by falling work of the LLM; "place" is a place in it
  std::vector<Item> items_;  // [place]
  Works share_{};            // [encoder] a cell's share of all work
  double mean_ = 0;          // LLM work of a cell
  std::vector<int> cells_;   // [place]
  std::vector<int> next_;    // [i] the first place from i on whose sample is left
  int left_ = 0;
  Works longest_{};  // [module] of the microbatch that is filled
  std::vector<double> rank_times_;
  double time_ = 0;
};

// Ways to cut runs, each tried with small changes of those that gave the shortest steps.
class RunSearch {
 public:
  RunSearch(const BalanceRequest& request, const std::function<void(const CellOf&)>& found)
      : request_(request), runs_(request), rng_(request.seed, 5), found_(found) {}

  void run() {
    constexpr std::size_t kChanged = 4;        // of the shortest steps
    constexpr std::int64_t kVisits = 300'000;  // of samples; a try visits all
    for (const double growth : {1.0, 0.8, 0.4, 0.1}) {
      for (const double slack : {1.05, 1.3, 1.8, 4.0}) {
        for (const bool as_longest : {true, false}) {
          SimilarRuns::Way way = runs_.lowest(growth, slack, as_longest);
          if (!way.levels.empty()) {
            offer(std::move(way));
          }
        }
      }
    }
    const std::int64_t tries = kVisits / std::ssize(request_.samples);
    for (std::int64_t number = 0; number < tries && !ways_.empty(); ++number) {
      offer(changed(ways_[rng_.below(std::min(kChanged, ways_.size()))].way));
    }
    for (const Known& known : ways_) {
      found_(runs_.run(known.way));
    }
  }

 private:
  struct Known {
    SimilarRuns::Way way;
    double time;
  };

  void offer(SimilarRuns::Way way) {
    constexpr std::size_t kMost = 8;
    const std::optional<double> time = runs_.time_of(way);
    if (!time || (ways_.size() == kMost && *time >= ways_.back().time)) {
      return;
    }
    Known known{std::move(way), *time};
    const auto place =
        std::lower_bound(ways_.begin(), ways_.end(), known, [](const Known& a, const Known& b) {
          return a.time < b.time;
        });
    if (place != ways_.end() && place->time == known.time) {
      return;
    }
    ways_.insert(place, std::move(known));
    if (ways_.size() > kMost) {
      ways_.pop_back();
    }
  }

  // Levels that add up to a little less.
  SimilarRuns::Way changed(SimilarRuns::Way way) {
    const double width = 2 * std::pow(rng_.uniform(), 3);
    const auto factor = [&] { return std::exp(width * (2 * rng_.uniform() - 1)); };
    const double before = std::accumulate(way.levels.begin(), way.levels.end(), 0.0);
    for (double& level : way.levels) {
      level *= rng_.below(2) == 0 ? factor() : 1;
    }
    way.slack *= rng_.below(2) == 0 ? factor() : 1;
    const double less = 1 - 0.02 * rng_.uniform() * rng_.uniform();
    const double after = std::accumulate(way.levels.begin(), way.levels.end(), 0.0);
    for (double& level : way.levels) {
      level *= less * before / after;
    }
    return way;
  }

  const BalanceRequest& request_;
  SimilarRuns runs_;
  Rng rng_;
  const std::function<void(const CellOf&)>& found_;
  std::vector<Known> ways_;  // the shortest first
};

}  // namespace

void offer_similar_runs(const BalanceRequest& request,
                        const std::function<void(const CellOf&)>& found) {
  RunSearch(request, found).run();
}

}  // namespace entrain
