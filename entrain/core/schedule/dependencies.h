// What every unit's forward and backward wait for, as flat arrays over unit numbers.
//
// Read first: UnitDependencies. Orders that follow a rule need no lists; replays and searches over
// orders do.
#pragma once

#include <span>
#include <vector>

#include "entrain/core/schedule/groups.h"
#include "entrain/core/schedule/unit_table.h"

namespace entrain {

class UnitDependencies {
 public:
  // Cost  O(units + parts + links between chunks).
  UnitDependencies(const std::vector<ModuleGroups>& groups, const UnitTable& table);

  // Units whose forward comes before a unit's forward: the stage before, or, on the LLM's first
  // stage, the last stage of every encoder group that serves it; then, on its own stage, the groups
  // with its samples' earlier chunks.
  [[nodiscard]] std::span<const int> before_forward(int unit) const { return forward_.of(unit); }

  // Units whose backward (of a split one the input half) comes before a unit's backward, beside its
  // own forward: the stage after, or, on an encoder's last stage, the first stage of every LLM
  // group it serves; then, on its own stage, the groups with its samples' later chunks. Empty for
  // units without a backward.
  [[nodiscard]] std::span<const int> before_backward(int unit) const { return backward_.of(unit); }

 private:
  struct Lists {
    std::vector<int> begin;  // [unit + 1]
    std::vector<int> units;
    [[nodiscard]] std::span<const int> of(int unit) const {
      const auto first = static_cast<std::size_t>(unit);
      return {units.data() + begin[first], units.data() + begin[first + 1]};
    }
  };

  Lists forward_;
  Lists backward_;
};

}  // namespace entrain
