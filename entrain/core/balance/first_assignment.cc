#include "entrain/core/balance/first_assignment.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "entrain/core/balance/cell_loads.h"
#include "entrain/core/balance/rivals.h"
#include "entrain/core/balance/similar_runs.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

constexpr int kAllCells = 512;
constexpr int kSomeCells = 128;
constexpr double kGrowth = 0.8;  // of a second construction, where few samples leave time for it
constexpr std::size_t kFewSamples = 2048;
constexpr int kMostAttempts = 50;  // to find a place for every sample within the limits

// Samples by rising `key`, ties by index.
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
  // With `growth` below 1 each microbatch gets that share of the one before, whatever the step
  // grows by: the largest samples make the first ones long, which the others there can fill.
  Construction(const BalanceRequest& request, double growth)
      : request_(request), loads_(request), by_share_(growth < 1) {
    for (int microbatch = 0; microbatch < request.microbatches; ++microbatch) {
      microbatch_share_.push_back(microbatch == 0 ? 1 : microbatch_share_.back() * growth);
    }
    for (const BalanceRequest::Sample& sample : request.samples) {
      for (int module = 0; module < request.num_modules; ++module) {
        share_[at(module)] += static_cast<double>(sample.work[at(module)]) / request.ranks;
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
    const std::vector<int> order = rising(whole_work(request_));
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
      if (change == CellLoads::kRefused || (!by_share_ && change > least)) {
        continue;
      }
      const double fullness =
          this->fullness(sample, cell) / microbatch_share_[at(cell / request_.ranks)];
      if (best < 0 || (!by_share_ && change < least) || fullness < emptiest) {
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
  bool by_share_;
  std::vector<double> microbatch_share_;  // of the first microbatch
  int calls_ = 0;
  std::array<double, kMaxBalanceModules> share_{};  // [module] a rank's share of all work
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

}  // namespace

std::vector<CellOf> first_assignments(const BalanceRequest& request, std::size_t most) {
  std::vector<std::int64_t> key = whole_work(request);  // of the order of placing
  // Different ways lead to different valleys of the search: some of each are kept.
  Shortest best(request, std::max<std::size_t>(1, most / 4));
  best.offer(drawn_cells(request));
  for (const BalanceRival& rival : balance_rivals()) {
    best.offer(rival.assign(request));
  }
  const auto construct = [&](double growth) {
    if (const std::optional<CellLoads> loads = Construction(request, growth).run(key)) {
      best.offer(loads->cells());
    }
  };
  if (request.layout == Layout::kFsdp && !request.padded) {
    construct(1);
    if (request.samples.size() <= kFewSamples) {
      construct(kGrowth);
    }
  }
  Rng rng(request.seed, 3);
  for (int attempt = 0; best.kept().empty() && attempt < kMostAttempts; ++attempt) {
    construct(1);
    rng.shuffle(std::span<std::int64_t>(key));
  }
  std::vector<CellOf> result = best.kept();
  if (request.padded) {
    Shortest runs(request, most - most / 4);
    offer_similar_runs(request, [&](const CellOf& cells) { runs.offer(cells); });
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
