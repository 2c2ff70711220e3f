#include "entrain/core/planner/partition.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

std::vector<std::int64_t> prefix_sums(const std::vector<std::int64_t>& values) {
  std::vector<std::int64_t> sums{0};
  for (const std::int64_t value : values) {
    sums.push_back(sums.back() + value);
  }
  return sums;
}

// Least largest time of the layers from each layer on, in every number of parts.
class CutTable {
 public:
  CutTable(const std::vector<std::int64_t>& layer_ns, int most_stages, const StageRules& rules)
      : layers_(static_cast<int>(layer_ns.size())),
        rules_(rules),
        time_before_(prefix_sums(layer_ns)),
        bytes_before_(prefix_sums(rules.layer_bytes)),
        least_(at(most_stages + 1), std::vector<std::int64_t>(at(layers_ + 1), kNone)),
        end_of_(at(most_stages + 1), std::vector<int>(at(layers_ + 1), layers_)) {
    ENTRAIN_INVARIANT(rules.entry_ns.empty() || rules.entry_ns.size() == layer_ns.size(),
                      "entries of another number of layers");
    ENTRAIN_INVARIANT(rules.layer_bytes.empty() || rules.layer_bytes.size() == layer_ns.size(),
                      "bytes of another number of layers");
    least_[0][at(layers_)] = 0;
    for (int part = 1; part <= most_stages; ++part) {
      fill(part);
    }
  }

  [[nodiscard]] std::int64_t largest(int stages) const { return least_[at(stages)][0]; }
  [[nodiscard]] std::vector<LayerRange> cut(int stages) const {
    std::vector<LayerRange> result;
    int begin = 0;
    for (int part = stages; part > 0; --part) {
      const int end = end_of_[at(part)][at(begin)];
      result.push_back({begin, end});
      begin = end;
    }
    return result;
  }

 private:
  void fill(int part) {
    const bool limited = rules_.capacity_bytes > 0 && !rules_.layer_bytes.empty();
    for (int begin = 0; begin < layers_; ++begin) {
      const std::int64_t entry = rules_.entry_ns.empty() ? 0 : rules_.entry_ns[at(begin)];
      for (int end = begin + 1; end <= layers_; ++end) {
        if (limited && bytes_before_[at(end)] - bytes_before_[at(begin)] > rules_.capacity_bytes) {
          break;
        }
        const std::int64_t time = time_before_[at(end)] - time_before_[at(begin)] + entry;
        if (time >= least_[at(part)][at(begin)]) {
          break;  // and so is every longer first part
        }
        const std::int64_t largest = std::max(least_[at(part - 1)][at(end)], time);
        if (largest < least_[at(part)][at(begin)]) {
          least_[at(part)][at(begin)] = largest;
          end_of_[at(part)][at(begin)] = end;
        }
      }
    }
  }

  int layers_;
  const StageRules& rules_;
  std::vector<std::int64_t> time_before_;   // [layer] sum of the layers before it
  std::vector<std::int64_t> bytes_before_;  // likewise
  // [part][layer]: least largest time of the layers from `layer` on in `part` parts, and where the
  // first of them ends.
  std::vector<std::vector<std::int64_t>> least_;
  std::vector<std::vector<int>> end_of_;
};

}  // namespace

Partition partition_layers(const std::vector<std::int64_t>& layer_ns,
                           int stages,
                           const StageRules& rules) {
  Partition result;
  if (stages < 1 || static_cast<int>(layer_ns.size()) < stages) {
    return result;
  }
  const CutTable table(layer_ns, stages, rules);
  if (table.largest(stages) != kNone) {
    result.stages = table.cut(stages);
    result.largest_ns = table.largest(stages);
  } else {
    result.missing_bytes =
        CutTable(rules.layer_bytes, stages, {}).largest(stages) - rules.capacity_bytes;
  }
  return result;
}

std::vector<LayerRange> min_max_partition(const std::vector<std::int64_t>& layer_ns, int stages) {
  return partition_layers(layer_ns, stages).stages;
}

std::vector<LayerRange> wrapped_partition(const std::vector<std::int64_t>& layer_ns,
                                          int lanes,
                                          int virtual_stages) {
  std::vector<LayerRange> stages = min_max_partition(layer_ns, lanes * virtual_stages);
  if (lanes == 1 || virtual_stages == 1) {
    return stages;
  }
  const std::vector<std::int64_t> before = prefix_sums(layer_ns);
  // Of all lanes, the fullest first; then of the slowest stage.
  const auto loads = [&] {
    std::vector<std::int64_t> result(at(lanes), 0);
    std::int64_t slowest = 0;
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      const std::int64_t time = before[at(stages[stage].end)] - before[at(stages[stage].begin)];
      result[stage % at(lanes)] += time;
      slowest = std::max(slowest, time);
    }
    std::sort(result.begin(), result.end(), std::greater<>());
    result.push_back(slowest);
    return result;
  };
  std::vector<std::int64_t> least = loads();
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t stage = 0; stage + 1 < stages.size(); ++stage) {
      for (const int by : {-1, 1}) {
        LayerRange& left = stages[stage];
        LayerRange& right = stages[stage + 1];
        if ((by < 0 ? left : right).begin + 1 == (by < 0 ? left : right).end) {
          continue;
        }
        right.begin = left.end += by;
        if (std::vector<std::int64_t> now = loads(); now < least) {
          least = std::move(now);
          moved = true;
        } else {
          right.begin = left.end -= by;
        }
      }
    }
  }
  return stages;
}

std::vector<std::int64_t> least_largest_ns(const std::vector<std::int64_t>& layer_ns,
                                           int most_stages,
                                           const StageRules& rules) {
  std::vector<std::int64_t> result;
  const CutTable table(layer_ns, most_stages, rules);
  for (int stages = 1; stages <= most_stages; ++stages) {
    const std::int64_t largest = table.largest(stages);
    result.push_back(largest == kNone ? kNoPartition : largest);
  }
  return result;
}

}  // namespace entrain
