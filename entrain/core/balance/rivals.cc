#include "entrain/core/balance/rivals.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <numeric>
#include <queue>
#include <span>
#include <utility>

#include "entrain/core/base/at.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

using Costs = std::vector<std::int64_t>;  // [sample]

std::vector<int> drawn_order(const BalanceRequest& request) {
  std::vector<int> order(request.samples.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<int> by_falling(const Costs& costs, std::vector<int> order) {
  std::stable_sort(
      order.begin(), order.end(), [&](int a, int b) { return costs[at(a)] > costs[at(b)]; });
  return order;
}

Costs tokens_of(const BalanceRequest& request) {
  Costs result;
  for (const BalanceRequest::Sample& sample : request.samples) {
    result.push_back(sample.tokens);
  }
  return result;
}

// `order` in `parts` even runs.
std::vector<std::vector<int>> even_runs(const std::vector<int>& order, int parts) {
  std::vector<std::vector<int>> result(at(parts));
  for (std::size_t i = 0; i < order.size(); ++i) {
    result[i * at(parts) / order.size()].push_back(order[i]);
  }
  return result;
}

// The assignment of cells with these samples.
CellOf cells_of(const BalanceRequest& request, const std::vector<std::vector<int>>& members) {
  CellOf cells(request.samples.size());
  for (std::size_t cell = 0; cell < members.size(); ++cell) {
    for (const int sample : members[cell]) {
      cells[at(sample)] = static_cast<int>(cell);
    }
  }
  return cells;
}

// Longest first, each sample to the bin with the least; then to the one with the fewest samples,
// then to the first.
std::vector<std::vector<int>> lpt(const Costs& costs, const std::vector<int>& samples, int bins) {
  using Bin = std::pair<std::pair<std::int64_t, int>, int>;  // load, samples; bin
  std::priority_queue<Bin, std::vector<Bin>, std::greater<>> open;
  for (int bin = 0; bin < bins; ++bin) {
    open.push({{0, 0}, bin});
  }
  std::vector<std::vector<int>> result(at(bins));
  for (const int sample : by_falling(costs, samples)) {
    auto [load, bin] = open.top();
    open.pop();
    result[at(bin)].push_back(sample);
    open.push({{load.first + costs[at(sample)], load.second + 1}, bin});
  }
  return result;
}

// Microbatches of samples, each distributed over ranks by LPT.
CellOf lpt_within(const BalanceRequest& request,
                  const Costs& costs,
                  const std::vector<std::vector<int>>& microbatches) {
  std::vector<std::vector<int>> members;
  for (const std::vector<int>& microbatch : microbatches) {
    for (std::vector<int>& cell : lpt(costs, microbatch, request.ranks)) {
      members.push_back(std::move(cell));
    }
  }
  return cells_of(request, members);
}

// A cell without samples, which no trainer can run, takes the one with the least cost of the cell
// that has most samples.
void fill_empty_cells(const BalanceRequest& request, const Costs& costs, CellOf& cells) {
  std::vector<int> counts(at(request.num_cells()));
  for (const int cell : cells) {
    ++counts[at(cell)];
  }
  for (int cell = 0; cell < request.num_cells(); ++cell) {
    if (counts[at(cell)] > 0) {
      continue;
    }
    const auto fullest =
        static_cast<int>(std::max_element(counts.begin(), counts.end()) - counts.begin());
    std::size_t given = cells.size();
    for (std::size_t sample = 0; sample < cells.size(); ++sample) {
      if (cells[sample] == fullest && (given == cells.size() || costs[sample] < costs[given])) {
        given = sample;
      }
    }
    cells[given] = cell;
    --counts[at(fullest)];
    ++counts[at(cell)];
  }
}

// Ranks' samples, each distributed over its rank's microbatches by LPT.
CellOf lpt_below(const BalanceRequest& request,
                 const Costs& costs,
                 const std::vector<std::vector<int>>& ranks) {
  std::vector<std::vector<int>> members(at(request.num_cells()));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::size_t cell = rank;
    for (std::vector<int>& microbatch : lpt(costs, ranks[rank], request.microbatches)) {
      members[cell] = std::move(microbatch);
      cell += at(request.ranks);
    }
  }
  CellOf cells = cells_of(request, members);
  fill_empty_cells(request, costs, cells);
  return cells;
}

// `order` in even runs to cells.
CellOf in_order(const BalanceRequest& request, const std::vector<int>& order) {
  return cells_of(request, even_runs(order, request.num_cells()));
}

CellOf random_order(const BalanceRequest& request) {
  std::vector<int> order = drawn_order(request);
  Rng(request.seed, 1).shuffle(std::span<int>(order));
  return in_order(request, order);
}

// As LengthGroupedSampler and its distributed form: batches of similar lengths, dealt to ranks one
// sample after the other.
CellOf length_grouped(const BalanceRequest& request) {
  const auto runs =
      even_runs(by_falling(tokens_of(request), drawn_order(request)), request.microbatches);
  CellOf cells(request.samples.size());
  for (std::size_t microbatch = 0; microbatch < runs.size(); ++microbatch) {
    for (std::size_t i = 0; i < runs[microbatch].size(); ++i) {
      cells[at(runs[microbatch][i])] =
          static_cast<int>(microbatch * at(request.ranks) + i % at(request.ranks));
    }
  }
  return cells;
}

// First-fit of `tokens` in drawn order into at most `most` packs of this capacity; nothing where
// they do not suffice.
std::vector<std::vector<int>> first_fit(const Costs& tokens, std::int64_t capacity, int most) {
  const std::size_t leaves = std::bit_ceil(at(most));
  Costs room(2 * leaves, -1);  // [1] the most of all packs, [node] of its children 2 · node, + 1
  for (std::size_t node = 2 * leaves - 1; node > 0; --node) {
    const bool pack = node >= leaves && node < leaves + at(most);
    room[node] = node < leaves ? std::max(room[2 * node], room[2 * node + 1])
                 : pack        ? capacity
                               : -1;
  }
  std::vector<std::vector<int>> packs;
  for (int sample = 0; sample < static_cast<int>(tokens.size()); ++sample) {
    if (room[1] < tokens[at(sample)]) {
      return {};
    }
    std::size_t node = 1;
    while (node < leaves) {
      node = 2 * node + (room[2 * node] < tokens[at(sample)] ? 1 : 0);
    }
    packs.resize(std::max(packs.size(), node - leaves + 1));
    packs[node - leaves].push_back(sample);
    room[node] -= tokens[at(sample)];
    for (node /= 2; node > 0; node /= 2) {
      room[node] = std::max(room[2 * node], room[2 * node + 1]);
    }
  }
  return packs;
}

// The least capacity for which the cells suffice, found by bisection; cells without a pack take
// the last sample of the fullest ones.
CellOf packed(const BalanceRequest& request) {
  const Costs tokens = tokens_of(request);
  const std::int64_t total = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
  const std::int64_t share = (total + request.num_cells() - 1) / request.num_cells();
  std::int64_t low = std::max(share, *std::max_element(tokens.begin(), tokens.end()));
  std::int64_t high =
      std::max(low, 2 * share);  // fits: any two packs hold more than one's capacity
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (first_fit(tokens, middle, request.num_cells()).empty()) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  std::vector<std::vector<int>> packs = first_fit(tokens, high, request.num_cells());
  while (packs.size() < at(request.num_cells())) {
    auto fullest = std::max_element(packs.begin(), packs.end(), [](const auto& a, const auto& b) {
      return a.size() < b.size();
    });
    const int moved = fullest->back();
    fullest->pop_back();
    packs.push_back({moved});
  }
  return cells_of(request, packs);
}

CellOf lpt_grouped(const BalanceRequest& request, const Costs& costs) {
  return lpt_within(
      request, costs, even_runs(by_falling(costs, drawn_order(request)), request.microbatches));
}

CellOf lpt_over_ranks(const BalanceRequest& request, const Costs& costs) {
  return lpt_below(request, costs, lpt(costs, drawn_order(request), request.ranks));
}

template <CellOf (*kAssign)(const BalanceRequest& request, const Costs& costs),
          Costs (*kCosts)(const BalanceRequest& request)>
CellOf by(const BalanceRequest& request) {
  return kAssign(request, kCosts(request));
}

// VeOmni: within each microbatch as drawn, on the squares of lengths.
CellOf veomni(const BalanceRequest& request) {
  constexpr std::int64_t kMostSquared = 10'000'000;  // so that a sum of squares stays in 64 bits
  Costs squares = tokens_of(request);
  for (std::int64_t& tokens : squares) {
    tokens = std::min<std::int64_t>(tokens, kMostSquared);
    tokens *= tokens;
  }
  return lpt_within(request, squares, even_runs(drawn_order(request), request.microbatches));
}

// The exchange of one sample between the slowest and the fastest rank that helps most.
bool swap_once(const Costs& costs, std::vector<std::vector<int>>& ranks, Costs& loads) {
  const auto slow = std::max_element(loads.begin(), loads.end()) - loads.begin();
  const auto fast = std::min_element(loads.begin(), loads.end()) - loads.begin();
  const std::int64_t gap = loads[at(slow)] - loads[at(fast)];
  std::int64_t best = gap;
  std::pair<int*, int*> chosen{nullptr, nullptr};
  for (int& mine : ranks[at(slow)]) {
    for (int& theirs : ranks[at(fast)]) {
      const std::int64_t moved = costs[at(mine)] - costs[at(theirs)];
      const std::int64_t left = std::abs(gap - 2 * moved);
      if (left < best) {
        best = left;
        chosen = {&mine, &theirs};
      }
    }
  }
  if (chosen.first == nullptr) {
    return false;
  }
  const std::int64_t moved = costs[at(*chosen.first)] - costs[at(*chosen.second)];
  loads[at(slow)] -= moved;
  loads[at(fast)] += moved;
  std::swap(*chosen.first, *chosen.second);
  return true;
}

// LoongForge: ranks by LPT on a fitted cost (here the cost itself), then up to 20 swaps.
CellOf loongforge(const BalanceRequest& request) {
  constexpr int kMostSwaps = 20;
  const Costs costs = whole_work(request);
  std::vector<std::vector<int>> ranks = lpt(costs, drawn_order(request), request.ranks);
  Costs loads;
  for (const std::vector<int>& rank : ranks) {
    loads.push_back(0);
    for (const int sample : rank) {
      loads.back() += costs[at(sample)];
    }
  }
  for (int swap = 0; swap < kMostSwaps && swap_once(costs, ranks, loads); ++swap) {
  }
  return lpt_below(request, costs, ranks);
}

// Megatron-Core's DpBalancedScheduler: cells are filled in drawn order up to their share of the
// tokens left.
CellOf megatron(const BalanceRequest& request) {
  const Costs tokens = tokens_of(request);
  const int num_cells = request.num_cells();
  const int count = static_cast<int>(tokens.size());
  std::int64_t left = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
  CellOf cells(tokens.size());
  int sample = 0;
  for (int cell = 0; cell < num_cells; ++cell) {
    const std::int64_t share = left / (num_cells - cell);
    std::int64_t filled = 0;
    const int last = cell + 1 == num_cells ? count : count - (num_cells - cell - 1);
    const int first = sample;
    for (; sample < last &&
           (sample == first || cell + 1 == num_cells || filled + tokens[at(sample)] / 2 <= share);
         ++sample) {
      filled += tokens[at(sample)];
      cells[at(sample)] = cell;
    }
    left -= filled;
  }
  return cells;
}

constexpr std::array<BalanceRival, 10> kRivals{{
    {"random", "shuffled, equal counts", random_order},
    {"length-grouped", "sorted by tokens, as group_by_length of transformers", length_grouped},
    {"packed", "first-fit by tokens in drawn order, the least capacity", packed},
    {"lpt-tokens-grouped",
     "grouped by tokens, LPT on tokens over ranks",
     by<lpt_grouped, tokens_of>},
    {"lpt-tokens", "LPT on tokens over ranks, then microbatches", by<lpt_over_ranks, tokens_of>},
    {"lpt-cost-grouped", "grouped by cost, LPT on cost over ranks", by<lpt_grouped, whole_work>},
    {"lpt-cost", "LPT on cost over ranks, then microbatches", by<lpt_over_ranks, whole_work>},
    {"veomni", "greedy on length² over ranks within each microbatch", veomni},
    {"loongforge", "LPT on cost over ranks, at most 20 swaps", loongforge},
    {"megatron", "drawn order, cells filled to their share of tokens", megatron},
}};

}  // namespace

CellOf drawn_cells(const BalanceRequest& request) {
  return in_order(request, drawn_order(request));
}

std::span<const BalanceRival> balance_rivals() {
  return kRivals;
}

}  // namespace entrain
