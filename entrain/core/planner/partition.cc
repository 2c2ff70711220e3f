#include "entrain/core/planner/partition.h"

#include <algorithm>
#include <limits>

namespace entrain {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

std::vector<LayerRange> min_max_partition(const std::vector<std::int64_t>& layer_ns, int stages) {
  const int layers = static_cast<int>(layer_ns.size());
  if (stages < 1 || layers < stages) {
    return {};
  }
  std::vector<std::int64_t> before{0};  // [layer] sum of the layers before it
  for (const std::int64_t cost : layer_ns) {
    before.push_back(before.back() + cost);
  }
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  // [part][layer]: least largest sum of the layers from `layer` on in `part` parts, and where the
  // first of them ends.
  std::vector<std::vector<std::int64_t>> least(at(stages + 1),
                                               std::vector<std::int64_t>(at(layers + 1), kNone));
  std::vector<std::vector<int>> end_of(at(stages + 1), std::vector<int>(at(layers + 1), layers));
  least[0][at(layers)] = 0;
  for (int part = 1; part <= stages; ++part) {
    for (int begin = 0; begin < layers; ++begin) {
      for (int end = begin + 1; end <= layers; ++end) {
        const std::int64_t rest = least[at(part - 1)][at(end)];
        const std::int64_t largest = std::max(rest, before[at(end)] - before[at(begin)]);
        if (rest != kNone && largest < least[at(part)][at(begin)]) {
          least[at(part)][at(begin)] = largest;
          end_of[at(part)][at(begin)] = end;
        }
      }
    }
  }
  std::vector<LayerRange> result;
  int begin = 0;
  for (int part = stages; part > 0; --part) {
    const int end = end_of[at(part)][at(begin)];
    result.push_back({begin, end});
    begin = end;
  }
  return result;
}

}  // namespace entrain
