#include "entrain/core/balance/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "entrain/core/balance/cell_loads.h"
#include "entrain/core/balance/first_assignment.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

// Padding makes more valleys, and few samples leave time to look at them; very many need more.
std::int64_t num_steps(const BalanceRequest& request) {
  constexpr std::int64_t kFew = 1024;
  constexpr std::int64_t kMany = 4096;
  const std::int64_t count = std::ssize(request.samples);
  const std::int64_t steps = request.search_steps;
  return steps * (request.padded && count <= kFew ? 2 : 1) * std::max(kMany, count) / kMany;
}

// Many samples need all steps for one search.
int num_rounds(const BalanceRequest& request) {
  constexpr int kMost = 8;
  constexpr int kStepsOfSample = 50;
  return static_cast<int>(std::clamp<std::int64_t>(
      num_steps(request) / (kStepsOfSample * std::ssize(request.samples)), 1, kMost));
}

// Moves and swaps out of the slowest ranks' cells.
class Search {
 public:
  explicit Search(const BalanceRequest& request)
      : request_(request), loads_(request), rng_(request.seed), bound_(step_time_bound(request)) {
    const auto llm = [&](int sample) {
      return request.samples[at(sample)].work[at(request.num_modules - 1)];
    };
    order_.resize(request.samples.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return llm(a) < llm(b); });
    place_.resize(order_.size());
    for (std::size_t place = 0; place < order_.size(); ++place) {
      place_[at(order_[place])] = static_cast<int>(place);
    }
    while ((std::size_t{4} << spread_) < order_.size()) {
      ++spread_;
    }
  }

  // Short searches from `starts`, some hot enough to leave a valley; then one from the best found.
  CellOf run(const std::vector<CellOf>& starts, int rounds) {
    least_ = step_time(request_, starts.front());
    best_ = starts.front();
    // Of the order of a sample's share of the step.
    const double warmth =
        static_cast<double>(least_) / (4 * static_cast<double>(request_.samples.size()));
    std::int64_t steps = num_steps(request_);
    const std::int64_t each = steps / 2 / rounds;
    for (int round = 0; round < rounds && rounds > 1; ++round) {
      const bool hot = round % 4 == 3;
      search(starts[at(round) % starts.size()], hot ? 16 * warmth : warmth, each);
      steps -= each;
    }
    search(CellOf(best_), warmth, steps);
    return std::move(best_);
  }

 private:
  void search(const CellOf& start, double warmth, std::int64_t steps) {
    loads_ = CellLoads(request_, start);
    for (std::int64_t step = 0; step < steps && least_ > bound_ && loads_.step_time() > bound_;
         ++step) {
      const double left = 1 - static_cast<double>(step) / static_cast<double>(steps);
      temperature_ = warmth * left * left;
      try_change();
    }
    keep_best();
  }

  void try_change() {
    const int cell = slow_cell();
    const std::vector<int>& members = loads_.members(cell);
    if (members.empty()) {
      return;
    }
    const int sample = members[pick(members.size())];
    int other = -1;
    int target = 0;
    if (pick(4) != 0) {
      other = similar_to(sample);
      target = loads_.cells()[at(other)];
    } else {
      target = target_cell(cell);
      const std::vector<int>& others = loads_.members(target);
      other = others.empty() ? -1 : others[pick(others.size())];
    }
    if (target == cell) {
      return;
    }
    if (other >= 0 && pick(3) != 0) {
      if (accepted(loads_.swap_change(sample, other))) {
        loads_.swap(sample, other);
      }
    } else if (accepted(loads_.move_change(sample, target))) {
      loads_.move(sample, target);
    }
  }

  // A sample near to this one in the order of LLM work, the nearer the likelier.
  int similar_to(int sample) {
    const auto count = static_cast<int>(order_.size());
    const std::size_t reach = std::size_t{2} << pick(spread_);
    const int distance = 1 + static_cast<int>(pick(reach));
    const int place = place_[at(sample)] + (pick(2) == 0 ? distance : -distance);
    return order_[at(std::clamp(place, 0, count - 1))];
  }

  void keep_best() {
    if (loads_.step_time() < least_) {
      least_ = loads_.step_time();
      best_ = loads_.cells();
    }
  }

  int slow_cell() {
    if (pick(8) == 0) {
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
    const int microbatch =
        pick(2) == 0 ? cell / request_.ranks : static_cast<int>(pick(at(request_.microbatches)));
    return microbatch * request_.ranks + rank;
  }

  bool accepted(std::int64_t change) {
    if (change <= 0) {
      return true;
    }
    // So much worse is never taken: exp(-40) is below a draw's last bit.
    if (static_cast<double>(change) >= 40 * temperature_ ||
        rng_.uniform() >= std::exp(-static_cast<double>(change) / temperature_)) {
      return false;
    }
    keep_best();
    return true;
  }

  // Uniform but for less than count / 2^32: cheaper than Rng::below().
  std::size_t pick(std::size_t count) {
    return static_cast<std::size_t>(((rng_.next() >> 32U) * count) >> 32U);
  }

  const BalanceRequest& request_;
  CellLoads loads_;
  Rng rng_;
  std::int64_t bound_;
  std::vector<int> order_;  // samples by rising work of the LLM
  std::vector<int> place_;  // [sample] in order_
  std::size_t spread_ = 1;
  double temperature_ = 0;
  CellOf best_;
  std::int64_t least_ = 0;
};

[[noreturn]] void fail_for_limits(const BalanceRequest& request) {
  std::string limits;
  const auto add = [&](std::int64_t limit, const char* unit) {
    limits += limit == 0 ? "" : fmt::format("{}{} {}", limits.empty() ? "" : ", ", limit, unit);
  };
  add(request.max_samples, "samples");
  add(request.max_tokens, "tokens");
  add(request.max_bytes, "bytes");
  throw NothingFits(
      fmt::format("{} {} no place in {} × {} of at most {}; "
                  "give more microbatches, fewer samples or a higher limit",
                  counted(std::ssize(request.samples), "sample"),
                  request.samples.size() == 1 ? "finds" : "find",
                  counted(request.ranks, "rank"),
                  counted(request.microbatches, "microbatch"),
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
  const int rounds = num_rounds(request);
  const std::vector<CellOf> starts = first_assignments(request, at(rounds));
  if (starts.empty()) {
    fail_for_limits(request);
  }
  return Search(request).run(starts, rounds);
}

}  // namespace entrain
