#include "tests/oracle/covering_rows.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <tuple>

namespace entrain::oracle {
namespace {

using Row = std::vector<int>;
using Pair = std::tuple<std::size_t, int, std::size_t, int>;  // factor and value, twice

std::set<Pair> pairs_of(const Row& row) {
  std::set<Pair> pairs;
  for (std::size_t first = 0; first < row.size(); ++first) {
    for (std::size_t second = first + 1; second < row.size(); ++second) {
      pairs.emplace(first, row[first], second, row[second]);
    }
  }
  return pairs;
}

std::set<Pair> all_pairs(const std::vector<int>& sizes) {
  std::set<Pair> pairs;
  for (std::size_t first = 0; first < sizes.size(); ++first) {
    for (std::size_t second = first + 1; second < sizes.size(); ++second) {
      for (int i = 0; i < sizes[first]; ++i) {
        for (int j = 0; j < sizes[second]; ++j) {
          pairs.emplace(first, i, second, j);
        }
      }
    }
  }
  return pairs;
}

Row draw_with(const Pair& pair, const std::vector<int>& sizes, Rng& rng) {
  Row row;
  for (const int size : sizes) {
    row.push_back(static_cast<int>(rng.below(static_cast<std::uint64_t>(size))));
  }
  row[std::get<0>(pair)] = std::get<1>(pair);
  row[std::get<2>(pair)] = std::get<3>(pair);
  return row;
}

}  // namespace

std::vector<Row> covering_rows(const std::vector<int>& sizes,
                               const std::function<bool(const Row&)>& allowed,
                               Rng& rng) {
  constexpr int kDraws = 200;
  std::vector<Row> rows;
  std::set<Pair> missing = all_pairs(sizes);
  while (!missing.empty()) {
    const Pair next = *missing.begin();
    Row best;
    std::size_t most = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      Row row = draw_with(next, sizes, rng);
      std::size_t covered = 0;
      for (const Pair& pair : pairs_of(row)) {
        covered += missing.count(pair);
      }
      if (covered > most && allowed(row)) {
        most = covered;
        best = std::move(row);
      }
    }
    missing.erase(next);
    for (const Pair& pair : pairs_of(best)) {
      missing.erase(pair);
    }
    if (!best.empty()) {
      rows.push_back(std::move(best));
    }
  }
  return rows;
}

}  // namespace entrain::oracle
