#include "entrain/core/balance/first_assignment.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "entrain/core/balance/cell_loads.h"
#include "entrain/core/balance/rivals.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

constexpr int kAllCells = 512;
constexpr int kSomeCells = 128;
constexpr int kMostAttempts = 50;  // to find a place for every sample within the limits

std::int64_t whole_work(const BalanceRequest& request, int sample) {
  const auto& work = request.samples[at(sample)].work;
  return std::accumulate(work.begin(), work.begin() + request.num_modules, std::int64_t{0});
}

// [sample] its place in `order`'s sense: by rising `key`, ties by index.
std::vector<int> rising(const std::vector<std::int64_t>& key) {
  std::vector<int> order(key.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(
      order.begin(), order.end(), [&](int a, int b) { return key[at(a)] < key[at(b)]; });
  return order;
}

// The first assignment.
class Construction {
 public:
  explicit Construction(const BalanceRequest& request) : request_(request), loads_(request) {
    for (int sample = 0; sample < static_cast<int>(request.samples.size()); ++sample) {
      whole_.push_back(whole_work(request, sample));
      for (int module = 0; module < request.num_modules; ++module) {
        share_[at(module)] +=
            static_cast<double>(request.samples[at(sample)].work[at(module)]) / request.ranks;
      }
    }
  }

  // By falling `key`; nothing where a sample finds no place.
  std::optional<CellLoads> run(const std::vector<std::int64_t>& key) {
    fill_needs();
    std::vector<int> order = rising(key);
    std::reverse(order.begin(), order.end());
    for (const int sample : order) {
      if (loads_.cells()[at(sample)] >= 0) {
        continue;
      }
      const int cell = best_cell(sample);
      if (cell < 0) {
        return std::nullopt;
      }
      loads_.place(sample, cell);
    }
    return std::move(loads_);
  }

 private:
  // The samples with the least work go where every cell needs one: the smallest to the last
  // microbatch, so that the samples of a microbatch are alike.
  void fill_needs() {
    const std::vector<int> order = rising(whole_);
    for (int module = 0; module < request_.num_modules; ++module) {
      if (request_.everywhere[at(module)]) {
        fill_need(order,
                  [&](int sample) { return request_.samples[at(sample)].work[at(module)] > 0; });
      }
    }
    fill_need(order, [](int) { return true; });
  }

  template <class Holds>
  void fill_need(const std::vector<int>& order, const Holds& holds) {
    std::size_t next = 0;
    for (int cell = request_.num_cells() - 1; cell >= 0; --cell) {
      const std::vector<int>& members = loads_.members(cell);
      if (std::any_of(members.begin(), members.end(), holds)) {
        continue;
      }
      while (next < order.size() &&
             (loads_.cells()[at(order[next])] >= 0 || !holds(order[next]) ||
              loads_.place_change(order[next], cell) == CellLoads::kRefused)) {
        ++next;
      }
      if (next == order.size()) {
        return;  // found missing by the caller
      }
      loads_.place(order[next], cell);
    }
  }

  // The cell in which the step grows least, of equal ones the emptiest; -1 where none has room.
  // After the `kAllCells` calls of the largest samples some cells are enough, spread over all.
  int best_cell(int sample) {
    const int stride = ++calls_ <= kAllCells ? 1 : 1 + request_.num_cells() / kSomeCells;
    const int found = best_cell(sample, calls_ % stride, stride);
    return found < 0 && stride > 1 ? best_cell(sample, 0, 1) : found;
  }

  [[nodiscard]] int best_cell(int sample, int first, int stride) const {
    int best = -1;
    std::int64_t least = CellLoads::kRefused;
    double emptiest = 0;
    for (int cell = first; cell < request_.num_cells(); cell += stride) {
      const std::int64_t change = loads_.place_change(sample, cell);
      if (change > least || change == CellLoads::kRefused) {
        continue;
      }
      const double fullness = this->fullness(sample, cell);
      if (change < least || fullness < emptiest) {
        best = cell;
        least = change;
        emptiest = fullness;
      }
    }
    return best;
  }

  [[nodiscard]] double fullness(int sample, int cell) const {
    double result = 0;
    if (request_.layout == Layout::kDdp) {
      const int rank = cell % request_.ranks;
      return static_cast<double>(loads_.times(0)[at(rank)]) +
             static_cast<double>(loads_.members(cell).size()) * 1e-3;
    }
    for (int module = 0; module < request_.num_modules; ++module) {
      const auto work = static_cast<double>(loads_.work(cell)[at(module)] +
                                            request_.samples[at(sample)].work[at(module)]);
      result = std::max(result, share_[at(module)] > 0 ? work / share_[at(module)] : 0);
    }
    return result;
  }

  const BalanceRequest& request_;
  CellLoads loads_;
  int calls_ = 0;
  std::vector<std::int64_t> whole_;                 // [sample]
  std::array<double, kMaxBalanceModules> share_{};  // [module] a rank's share of all work
};

// Under padding: every cell is a run of samples of similar lengths, so that little is padded.
class SimilarRuns {
 public:
  explicit SimilarRuns(const BalanceRequest& request) : request_(request) {
    std::vector<std::int64_t> llm;
    for (const BalanceRequest::Sample& sample : request.samples) {
      llm.push_back(sample.work[at(request.num_modules - 1)]);
      for (int module = 0; module + 1 < request.num_modules; ++module) {
        share_[at(module)] += static_cast<double>(sample.work[at(module)]) / request.num_cells();
      }
    }
    order_ = rising(llm);
    std::reverse(order_.begin(), order_.end());
    for (const std::int64_t work : llm) {
      mean_ += static_cast<double>(work) / request.num_cells();
    }
    mean_ = std::max(mean_, 1.0);
    next_.resize(order_.size() + 1);
  }

  // The lowest level of LLM work in a microbatch for which the cells suffice. Each microbatch's is
  // `growth` of the one before, but at least its longest sample's work. No cell has more than
  // `slack` of an even share of an encoder's work or, with `as_longest`, than that of its
  // microbatch's longest sample, but for one sample. Empty where none is found.
  CellOf run(double growth, double slack, bool as_longest) {
    constexpr double kRaise = 1.25;
    constexpr int kMostRaises = 8;
    constexpr int kHalvings = 6;
    double high = mean_;
    for (int raise = 0; !fill(high, growth, slack, as_longest); ++raise) {
      if (raise == kMostRaises) {
        return {};
      }
      high *= kRaise;
    }
    CellOf best = cells_;
    double low = high / kRaise;
    for (int halving = 0; halving < kHalvings; ++halving) {
      const double middle = (low + high) / 2;
      if (fill(middle, growth, slack, as_longest)) {
        best = cells_;
        high = middle;
      } else {
        low = middle;
      }
    }
    return best;
  }

 private:
  using Encoders = std::array<double, kMaxBalanceModules>;

  [[nodiscard]] std::int64_t work(int sample) const {
    return request_.samples[at(sample)].work[at(request_.num_modules - 1)];
  }

  [[nodiscard]] double encoder(int sample, int module) const {
    return static_cast<double>(request_.samples[at(sample)].work[at(module)]);
  }

  bool fill(double level, double growth, double slack, bool as_longest) {
    cells_.assign(order_.size(), -1);
    std::iota(next_.begin(), next_.end(), 0);
    left_ = static_cast<int>(order_.size());
    for (int microbatch = 0; microbatch < request_.microbatches; ++microbatch) {
      const double here = std::max(level, static_cast<double>(work(longest_left())));
      Encoders room{};
      for (int module = 0; module + 1 < request_.num_modules; ++module) {
        room[at(module)] =
            as_longest ? std::max(slack * share_[at(module)], encoder(longest_left(), module))
                       : slack * share_[at(module)] * here / mean_;
      }
      for (int rank = 0; rank < request_.ranks; ++rank) {
        fill_cell(microbatch * request_.ranks + rank, here, room);
      }
      level *= growth;
    }
    return left_ == 0;
  }

  // next_[i] is the place in order_ of the first sample left from place i on.
  [[nodiscard]] int longest_left() const { return order_[at(next_[0])]; }

  // Takes the longest sample left and others as they follow, but leaves one for each later cell.
  void fill_cell(int cell, double level, const Encoders& room) {
    constexpr int kMostPassed = 32;
    const double most = most_samples(longest_left(), level, request_.num_cells() - cell - 1);
    Encoders sums{};
    std::int64_t bytes = 0;
    int taken = 0;
    int passed = 0;
    int before = 0;  // its next_ is the place looked at
    while (taken + 1 <= most || taken == 0) {
      const int place = next_[at(before)];
      if (place == std::ssize(order_) || passed == kMostPassed) {
        break;
      }
      const int sample = order_[at(place)];
      if (taken > 0 && !has_room(sample, sums, bytes, room)) {
        before = place + 1;
        ++passed;
        continue;
      }
      for (int module = 0; module + 1 < request_.num_modules; ++module) {
        sums[at(module)] += encoder(sample, module);
      }
      bytes += request_.samples[at(sample)].bytes;
      cells_[at(sample)] = cell;
      next_[at(before)] = next_[at(place + 1)];
      ++taken;
      --left_;
    }
  }

  // So many of no more than this sample's length, with one left for each of `after` cells.
  [[nodiscard]] double most_samples(int longest, double level, int after) const {
    const BalanceRequest::Sample& sample = request_.samples[at(longest)];
    double most = std::min(level / std::max(1.0, static_cast<double>(work(longest))),
                           static_cast<double>(left_ - after));
    if (request_.max_tokens > 0 && sample.tokens > 0) {
      most = std::min(most, static_cast<double>(request_.max_tokens / sample.tokens));
    }
    return request_.max_samples > 0 ? std::min(most, static_cast<double>(request_.max_samples))
                                    : most;
  }

  [[nodiscard]] bool has_room(int sample,
                              const Encoders& sums,
                              std::int64_t bytes,
                              const Encoders& room) const {
    const BalanceRequest::Sample& what = request_.samples[at(sample)];
    for (int module = 0; module + 1 < request_.num_modules; ++module) {
      const double more = encoder(sample, module);
      if (more > 0 && sums[at(module)] + more > room[at(module)]) {
        return false;
      }
    }
    return request_.max_bytes == 0 || bytes + what.bytes <= request_.max_bytes;
  }

  const BalanceRequest& request_;
  std::vector<int> order_;  // by falling work of the LLM
  Encoders share_{};        // [encoder] a cell's share of all work
  double mean_ = 0;         // LLM work of a cell
  std::vector<int> next_;
  int left_ = 0;
  CellOf cells_;
};

// Those of the offered assignments that keep the rules: the shortest first, no time twice.
class Shortest {
 public:
  Shortest(const BalanceRequest& request, std::size_t most) : request_(request), most_(most) {}

  void offer(const CellOf& cells) {
    const std::int64_t time = step_time(request_, cells);
    const auto place = std::lower_bound(times_.begin(), times_.end(), time);
    if (place - times_.begin() == std::ssize(times_) ? times_.size() == most_ : *place == time) {
      return;
    }
    if (!balance_violations(request_, cells).empty()) {
      return;
    }
    kept_.insert(kept_.begin() + (place - times_.begin()), cells);
    times_.insert(place, time);
    if (kept_.size() > most_) {
      kept_.pop_back();
      times_.pop_back();
    }
  }

  [[nodiscard]] const std::vector<CellOf>& kept() const { return kept_; }

 private:
  const BalanceRequest& request_;
  std::size_t most_;
  std::vector<CellOf> kept_;
  std::vector<std::int64_t> times_;  // of kept_
};

void offer_similar_runs(const BalanceRequest& request, Shortest& best) {
  constexpr double kGrowths[] = {1.0, 0.8};
  constexpr double kSlacks[] = {1.05, 1.15, 1.3, 1.8, 1e9};
  SimilarRuns runs(request);
  for (const double growth : kGrowths) {
    for (const double slack : kSlacks) {
      for (const bool as_longest : {true, false}) {
        const CellOf cells = runs.run(growth, slack, as_longest);
        if (!cells.empty()) {
          best.offer(cells);
        }
      }
    }
  }
}

}  // namespace

std::vector<CellOf> first_assignments(const BalanceRequest& request, std::size_t most) {
  std::vector<std::int64_t> key;  // of the order of placing
  for (int sample = 0; sample < static_cast<int>(request.samples.size()); ++sample) {
    key.push_back(whole_work(request, sample));
  }
  // Different ways lead to different valleys of the search: some of each are kept.
  Shortest best(request, std::max<std::size_t>(1, most / 4));
  best.offer(drawn_cells(request));
  for (const BalanceRival& rival : balance_rivals()) {
    best.offer(rival.assign(request));
  }
  const auto construct = [&] {
    if (const std::optional<CellLoads> loads = Construction(request).run(key)) {
      best.offer(loads->cells());
    }
  };
  if (request.layout == Layout::kFsdp && !request.padded) {
    construct();
  }
  Rng rng(request.seed, 3);
  for (int attempt = 0; best.kept().empty() && attempt < kMostAttempts; ++attempt) {
    construct();
    rng.shuffle(std::span<std::int64_t>(key));
  }
  std::vector<CellOf> result = best.kept();
  if (request.padded) {
    Shortest runs(request, most - most / 4);
    offer_similar_runs(request, runs);
    result.insert(result.end(), runs.kept().begin(), runs.kept().end());
  }
  const auto shorter = [&](const CellOf& a, const CellOf& b) {
    return step_time(request, a) < step_time(request, b);
  };
  std::stable_sort(result.begin(), result.end(), shorter);
  result.resize(std::min(result.size(), most));
  return result;
}

}  // namespace entrain
