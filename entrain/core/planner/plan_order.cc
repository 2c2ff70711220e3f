#include "entrain/core/planner/plan_order.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace entrain {
namespace {

using std::int64_t;

constexpr int64_t kMostGuesses = 64;
constexpr int64_t kMostGuessUnits = 700'000;

// Cheap scouts come first, since dear ones would use up their units.
struct ScoutLimits {
  int64_t share;    // one of them takes at most this part of the units of `first`
  int64_t percent;  // of those units, for it and all before
};
constexpr ScoutLimits kScouts[] = {{.share = 16, .percent = 67}, {.share = 8, .percent = 100}};

// Where guided, an eighth of the units are guessed, two to four configurations, four to eight from
// 2,048 samples on.
constexpr int64_t kGuidedShare = 8;
constexpr int64_t kLeastGuided = 2;
constexpr int64_t kMostGuided = 4;

std::vector<int> kind_of(const PlanShape& config) {
  std::vector<int> kind{config.replicas, static_cast<int>(config.layout)};
  for (const ModuleShape& module : config.modules) {
    kind.push_back(module.degrees.tensor_parallel);
    kind.push_back(module.degrees.context_parallel);
    kind.push_back(module.virtual_stages);
  }
  return kind;
}

// Of kinds that are not among these.
std::set<int64_t> choose_scouts(const std::vector<PlanEntry>& by_estimate,
                                const std::function<int64_t(const PlanShape&)>& units_of,
                                int64_t most_units,
                                std::set<std::vector<int>> kinds) {
  std::set<int64_t> scouts;
  int64_t units = 0;
  for (const ScoutLimits& limits : kScouts) {
    std::set<std::vector<int>> asked = kinds;
    for (const PlanEntry& entry : by_estimate) {
      if (100 * units >= limits.percent * most_units || std::ssize(scouts) >= kMostGuesses) {
        break;
      }
      std::vector<int> kind = kind_of(entry.config);
      if (!asked.insert(kind).second) {
        continue;
      }
      const int64_t more = units_of(entry.config);
      if (limits.share * more <= most_units) {
        units += more;
        kinds.insert(std::move(kind));
        scouts.insert(entry.number);
      }
    }
  }
  return scouts;
}

// Whether lanes go on from the best plan as they went to it, twice as many.
bool goes_on(const PlanShape& best, const PlanShape& before, const PlanShape& other) {
  PlanShape on = best;
  if (before.modules.empty() || before.replicas != on.replicas || before.layout != on.layout) {
    return false;
  }
  for (std::size_t module = 0; module < on.modules.size(); ++module) {
    on.modules[module].stages += 2 * (on.modules[module].stages - before.modules[module].stages);
  }
  return on == other;
}

// Whether it has twice the replicas of the best plan, of half the lanes each, or the reverse.
bool is_scaled(const PlanShape& best, const PlanShape& other) {
  if (other.replicas != 2 * best.replicas && 2 * other.replicas != best.replicas) {
    return false;
  }
  for (std::size_t module = 0; module < best.modules.size(); ++module) {
    const ModuleShape& mine = best.modules[module];
    const ModuleShape& its = other.modules[module];
    if (its.stages * other.replicas != mine.stages * best.replicas ||
        !(its.degrees == mine.degrees) || its.virtual_stages != mine.virtual_stages) {
      return false;
    }
  }
  return true;
}

}  // namespace

GuessChoice choose_guesses(const std::vector<PlanEntry>& by_estimate,
                           const std::function<int64_t(const PlanShape&)>& units_of,
                           const GuessLimits& limits) {
  const int64_t scale = std::min<int64_t>(2, limits.size_scale);
  const int64_t most = limits.guided ? scale * kMostGuided : kMostGuesses;
  const int64_t least = limits.guided ? scale * kLeastGuided : 0;
  const int64_t most_units =
      limits.size_scale * kMostGuessUnits / (limits.guided ? kGuidedShare : 1);
  GuessChoice chosen;
  std::set<std::vector<int>> kinds;
  std::set<int> replica_counts;
  int64_t units = 0;
  bool next = true;
  for (const PlanEntry& entry : by_estimate) {
    const auto count = std::ssize(chosen.first);
    next = next && count < most && (units < most_units || count < least);
    const bool one_lane = lanes_of(entry.config) == 1;
    const bool another = !limits.guided && replica_counts.count(entry.config.replicas) == 0;
    if (!next && !another && !one_lane) {
      continue;
    }
    const int64_t more = units_of(entry.config);
    if (next || more <= most_units || one_lane) {
      units += more;
      replica_counts.insert(entry.config.replicas);
      kinds.insert(kind_of(entry.config));
      chosen.first.insert(entry.number);
    }
  }
  if (!limits.guided) {
    chosen.scouts = choose_scouts(by_estimate, units_of, most_units, std::move(kinds));
  }
  return chosen;
}

std::vector<std::size_t> near_plan(const std::vector<PlanEntry>& entries,
                                   const std::vector<char>& judged,
                                   const PlanShape& best,
                                   const PlanShape& before) {
  constexpr std::size_t kMost = 4;
  std::vector<std::pair<int, std::size_t>> similar;  // lanes that went, and index
  for (std::size_t index = 0; index < entries.size(); ++index) {
    const PlanShape& other = entries[index].config;
    if (judged[index] != 0 || other.layout != best.layout) {
      continue;
    }
    if (is_scaled(best, other)) {
      similar.emplace_back(0, index);
    }
    if (other.replicas != best.replicas) {
      continue;
    }
    int shapes = 0;
    int degrees = 0;
    int lanes = 0;
    for (std::size_t module = 0; module < best.modules.size(); ++module) {
      shapes += other.modules[module] == best.modules[module] ? 0 : 1;
      degrees += other.modules[module].degrees == best.modules[module].degrees ? 0 : 1;
      lanes += std::abs(other.modules[module].stages - best.modules[module].stages);
    }
    if (shapes <= 1 || degrees == 0) {
      similar.emplace_back(goes_on(best, before, other) ? 0 : lanes, index);
    }
  }
  const std::size_t count = std::min(kMost, similar.size());
  std::partial_sort(
      similar.begin(), similar.begin() + static_cast<std::ptrdiff_t>(count), similar.end());
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < count; ++i) {
    result.push_back(similar[i].second);
  }
  return result;
}

}  // namespace entrain
