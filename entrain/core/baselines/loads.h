// The load of a sample on the lanes that can be the slowest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// Loads in nanoseconds of forward and backward on up to kLoadDimensions lanes: each module's
// heaviest one. Unused places are 0. Floating point holds them exactly below 2^53 ns (104 days).
inline constexpr int kLoadDimensions = 4;
using Load = std::array<double, kLoadDimensions>;

struct BatchLoads {
  std::vector<int> lanes;                // the lane of each dimension
  std::vector<Load> sample;              // [sample] all its work
  std::vector<Load> llm;                 // [sample] its work in the LLM
  std::vector<std::vector<Load>> unit;   // [encoder][unit]
  Load total{};                          // over all samples
  std::vector<std::int64_t> normalised;  // [sample] largest share of a lane's total, in 1e-12
  std::vector<int> descending;           // samples by `normalised`, then index
  std::vector<char> text_only;           // [sample] no segment in any encoder
  // [sample][lane with a limit] bytes, by activations_of(); empty unless a policy fills it.
  std::vector<std::vector<double>> lane_bytes;
};

// Of some samples, in what `normalised` counts.
inline double work_of(const BatchLoads& loads, const std::vector<int>& samples) {
  double sum = 0;
  for (const int sample : samples) {
    sum += static_cast<double>(loads.normalised[static_cast<std::size_t>(sample)]);
  }
  return sum;
}

// With more modules than dimensions the lightest modules' lanes are left out.
BatchLoads batch_loads(const Plan& plan, const StepCosts& costs);

// Deals loads to bins, each to the bin whose largest dimension is then the least of all; of equal
// bins to the one with the fewest loads, then to the first. So loads of 0 go to empty bins first.
class LoadBins {
 public:
  // scale: [dimension] > 0, by which its loads are divided; a dimension of scale 0 does not count.
  LoadBins(int count, const Load& scale)
      : bins_(static_cast<std::size_t>(count)),
        least_((bins_.size() + kBlock - 1) / kBlock),
        bounds_(least_.size()),
        scale_(scale) {}

  // Adds a load, >= 0, and returns its bin.
  // Cost  O(bins): those that the least loads of their block rule out count a sixteenth; O(1) while
  //       there are empty bins.
  int add(const Load& load);

 private:
  struct Bin {
    Load load{};
    int count = 0;
  };
  static constexpr std::size_t kBlock = 16;
  [[nodiscard]] double largest_with(const Bin& bin, const Load& load) const;
  // Of bins that all have loads.
  std::size_t least_with(const Load& load);
  void find_least(std::size_t block);

  std::vector<Bin> bins_;
  std::vector<Bin> least_;  // [block] of its bins' loads, in each dimension, and numbers of loads
  std::vector<double> bounds_;  // [block] of what its bins come to with the load that is added
  std::size_t num_filled_ = 0;  // bins before it have loads
  Load scale_;
};

}  // namespace entrain
