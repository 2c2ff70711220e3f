#include "entrain/core/balance/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "entrain/core/balance/cell_loads.h"
#include "entrain/core/balance/rivals.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

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
  [[nodiscard]] int best_cell(int sample) const {
    int best = -1;
    std::int64_t least = CellLoads::kRefused;
    double emptiest = 0;
    for (int cell = 0; cell < request_.num_cells(); ++cell) {
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
  std::vector<std::int64_t> whole_;                 // [sample]
  std::array<double, kMaxBalanceModules> share_{};  // [module] a rank's share of all work
};

// Moves and swaps out of the slowest ranks' cells.
class Search {
 public:
  Search(const BalanceRequest& request, CellLoads& loads)
      : request_(request), loads_(loads), rng_(request.seed) {}

  CellOf run(std::int64_t bound) {
    CellOf best = loads_.cells();
    std::int64_t least = loads_.step_time();
    // Of the order of a sample's share of the step.
    const double start =
        static_cast<double>(least) / (2 * static_cast<double>(request_.samples.size()));
    for (int step = 0; step < request_.search_steps && least > bound; ++step) {
      const double left = 1 - static_cast<double>(step) / request_.search_steps;
      temperature_ = start * left * left;
      try_change();
      if (loads_.step_time() < least) {
        least = loads_.step_time();
        best = loads_.cells();
      }
    }
    return best;
  }

 private:
  void try_change() {
    const int cell = slow_cell();
    const std::vector<int>& members = loads_.members(cell);
    if (members.empty()) {
      return;
    }
    const int sample = members[pick(members.size())];
    const int target = target_cell(cell);
    if (target == cell) {
      return;
    }
    const std::vector<int>& others = loads_.members(target);
    if (!others.empty() && rng_.below(3) != 0) {
      const int other = others[pick(others.size())];
      if (accepted(loads_.swap_change(sample, other))) {
        loads_.swap(sample, other);
      }
    } else if (accepted(loads_.move_change(sample, target))) {
      loads_.move(sample, target);
    }
  }

  int slow_cell() {
    if (rng_.below(8) == 0) {
      return static_cast<int>(pick(at(request_.num_cells())));
    }
    const int meeting = static_cast<int>(pick(at(loads_.num_meetings())));
    const int microbatch = request_.layout == Layout::kFsdp
                               ? meeting / request_.num_modules
                               : static_cast<int>(pick(at(request_.microbatches)));
    return microbatch * request_.ranks + loads_.slowest_rank(meeting);
  }

  int target_cell(int cell) {
    const int rank = static_cast<int>(pick(at(request_.ranks)));
    const int microbatch = rng_.below(2) == 0 ? cell / request_.ranks
                                              : static_cast<int>(pick(at(request_.microbatches)));
    return microbatch * request_.ranks + rank;
  }

  bool accepted(std::int64_t change) {
    if (change <= 0) {
      return true;
    }
    return change != CellLoads::kRefused && temperature_ > 0 &&
           rng_.uniform() < std::exp(-static_cast<double>(change) / temperature_);
  }

  std::size_t pick(std::size_t count) { return static_cast<std::size_t>(rng_.below(count)); }

  const BalanceRequest& request_;
  CellLoads& loads_;
  Rng rng_;
  double temperature_ = 0;
};

// Keeps `cells` where they obey the rules and are better than what was kept.
class Best {
 public:
  explicit Best(const BalanceRequest& request) : request_(request) {}

  void offer(const CellOf& cells) {
    const std::int64_t time = step_time(request_, cells);
    if ((cells_.empty() || time < least_) && balance_violations(request_, cells).empty()) {
      least_ = time;
      cells_ = cells;
    }
  }

  [[nodiscard]] const CellOf& cells() const { return cells_; }

 private:
  const BalanceRequest& request_;
  CellOf cells_;
  std::int64_t least_ = 0;
};

// The best of this package's, the given order and the rivals'; empty where no attempt keeps the
// rules.
CellOf first_assignment(const BalanceRequest& request) {
  std::vector<std::int64_t> key;  // of the order of placing
  for (int sample = 0; sample < static_cast<int>(request.samples.size()); ++sample) {
    key.push_back(whole_work(request, sample));
  }
  Best best(request);
  const auto construct = [&] {
    if (const std::optional<CellLoads> loads = Construction(request).run(key)) {
      best.offer(loads->cells());
    }
  };
  construct();
  best.offer(drawn_cells(request));
  for (const BalanceRival& rival : balance_rivals()) {
    best.offer(rival.assign(request));
  }
  Rng rng(request.seed, 3);
  for (int attempt = 0; best.cells().empty() && attempt < kMostAttempts; ++attempt) {
    construct();
    rng.shuffle(std::span<std::int64_t>(key));
  }
  return best.cells();
}

[[noreturn]] void fail_for_limits(const BalanceRequest& request) {
  std::string limits;
  const auto add = [&](std::int64_t limit, const char* unit) {
    limits += limit == 0 ? "" : fmt::format("{}{} {}", limits.empty() ? "" : ", ", limit, unit);
  };
  add(request.max_samples, "samples");
  add(request.max_tokens, "tokens");
  add(request.max_bytes, "bytes");
  throw NothingFits(
      fmt::format("{} samples find no place in {} ranks × {} microbatches of at most {}; "
                  "give more microbatches, fewer samples or a higher limit",
                  request.samples.size(),
                  request.ranks,
                  request.microbatches,
                  limits));
}

}  // namespace

CellOf balance(const BalanceRequest& request) {
  check_request(request);
  const std::vector<int> oversized = oversized_samples(request);
  if (!oversized.empty()) {
    throw NothingFits(fmt::format("sample {} exceeds a microbatch's limit alone ({} of {} do)",
                                  oversized.front(),
                                  oversized.size(),
                                  request.samples.size()));
  }
  const CellOf first = first_assignment(request);
  if (first.empty()) {
    fail_for_limits(request);
  }
  CellLoads loads(request, first);
  return Search(request, loads).run(step_time_bound(request));
}

}  // namespace entrain
