// Times along a sample's way through a plan's stages, which the lower bounds add up.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// Which operations a bound counts.
enum class BoundMode : std::uint8_t {
  kFused,        // backward is one operation
  kSplitWork,    // all work, nothing after a lane's last operation: it may be a weight half
  kSplitInputs,  // only forwards and input gradients, with the operations that must follow the last
                 // one
};

// A backward path through stages: each may be followed by its own weight half and its lane's
// reduction, while the path continues. In ns.
struct WayBack {
  std::int64_t length = 0;  // to the end of the last backward
  std::int64_t latest = 0;  // to the end of all that follows any of them

  // Time after this path.
  [[nodiscard]] std::int64_t latest_with(std::int64_t latest_behind) const {
    return latest > length + latest_behind ? latest : length + latest_behind;
  }
};

// All times in ns; `unit` is a unit of module `m`: a segment of an encoder or a sample of the LLM.
// Construction costs O(units + runs × stages), see ModuleCosts::runs, every answer O(1).
class Ways {
 public:
  // One module as the bounds see it.
  struct Module {
    std::vector<int> lane;   // [stage]
    int first_backward = 0;  // first stage that takes backward by its own module's weights
    bool trainable = false;  // anything in it
    std::vector<const StageCosts*> stages;
    std::vector<int> run_of;  // [unit]
    std::vector<int> counts;  // [run] units
    // Of every run's ways, at number(): those of equal units are equal.
    std::vector<std::int64_t> forward_before;   // forward and transfers to reach the stage
    std::vector<std::int64_t> backward_before;  // backward of the stages before it
    // Of the stages before it that take backward: the most by which what follows one of their
    // backwards exceeds the stage's own backward_before; least int64 if there is none.
    std::vector<std::int64_t> latest_before;

    [[nodiscard]] std::size_t number(int unit, int stage) const {
      return at(run_of[at(unit)]) * (stages.size() + 1) + at(stage);
    }
  };

  // The parts of a sample's way that do not depend on a lane.
  struct Sample {
    bool llm_backward = false;          // certain on every LLM stage: its features are trainable
    std::int64_t encoder_forward = 0;   // longest way of a segment up to the LLM's first stage
    std::int64_t encoder_backward = 0;  // longest backward path, to the end of all after it
    std::int64_t least_encoder_forward = 0;  // shortest way of a segment
  };

  // Keeps references to both.
  Ways(const Plan& plan, const StepCosts& costs, BoundMode mode);

  [[nodiscard]] int llm() const { return llm_; }
  [[nodiscard]] const Module& module(int m) const { return modules_[at(m)]; }
  [[nodiscard]] const Sample& sample(int sample) const { return samples_[at(sample)]; }
  [[nodiscard]] int num_stages(int m) const {
    return static_cast<int>(modules_[at(m)].stages.size());
  }
  [[nodiscard]] const OperationTimes& time(int m, int s, int unit) const {
    return modules_[at(m)].stages[at(s)]->units[at(unit)].time;
  }
  // Of the gradients on a lane after its last backward; 0 where it overlaps compute.
  [[nodiscard]] std::int64_t reduce(int lane) const { return reduce_[at(lane)]; }
  [[nodiscard]] std::int64_t slowest_optimizer() const;

  // Where a sample's LLM work may be cut, what others wait for is a chunk: its launch is certain.
  [[nodiscard]] bool cut(int m) const { return m == llm_ && plan_.limits.chunks; }
  [[nodiscard]] std::int64_t forward(int m, int s, int unit) const;
  // On the backward path from the loss.
  [[nodiscard]] std::int64_t backward(int m, int s, int unit) const;
  // From the end of a forward at this stage to its arrival at the next one.
  [[nodiscard]] std::int64_t transfer(int m, int s, int unit) const;
  // Forward through stages [0, end), arrival at stage `end` included.
  [[nodiscard]] std::int64_t forward_until(int m, int end, int unit) const;
  [[nodiscard]] std::int64_t forward_from(int m, int begin, int unit) const;
  // Backward through the stages before `end` that certainly take it.
  [[nodiscard]] WayBack way_back(int m, int end, int unit) const;
  [[nodiscard]] int first_llm_backward(int sample) const {
    return samples_[at(sample)].llm_backward ? 0 : modules_[at(llm_)].first_backward;
  }
  // LLM forward and backward of a sample over all stages, and an encoder's backward path of which
  // `encoder_latest` is known.
  [[nodiscard]] std::int64_t llm_round_trip(int sample, std::int64_t encoder_latest) const;

  // visit(unit, count) for the first unit of every run of the sample's.
  template <class Visit>
  void for_each_run(int m, int sample, Visit visit) const {
    const std::vector<int>& first = costs_.modules[at(m)].first_unit;
    const Module& of = modules_[at(m)];
    for (int unit = first[at(sample)]; unit < first[at(sample + 1)];) {
      const int count = of.counts[at(of.run_of[at(unit)])];
      visit(unit, count);
      unit += count;
    }
  }

 private:
  [[nodiscard]] std::int64_t sum_on_lane(int lane,
                                         std::chrono::nanoseconds StageCosts::*field) const;
  [[nodiscard]] std::int64_t behind(int m, int s, int unit) const;
  void measure_ways(int m);
  void collect_samples();

  const Plan& plan_;
  const StepCosts& costs_;
  BoundMode mode_;
  int llm_;
  std::vector<Module> modules_;
  std::vector<Sample> samples_;
  std::vector<std::int64_t> reduce_;  // [lane]
};

}  // namespace entrain
