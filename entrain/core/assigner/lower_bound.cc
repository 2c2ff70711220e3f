#include "entrain/core/assigner/lower_bound.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/schedule/schedule.h"

namespace entrain {
namespace {

using std::int64_t;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;
constexpr int64_t kNothing = std::numeric_limits<int64_t>::min();

// One module as the bound sees it.
struct Module {
  std::vector<int> lane;   // [stage]
  int first_backward = 0;  // first stage that takes backward by its own module's weights
  bool trainable = false;  // anything in it
  std::vector<const StageCosts*> stages;
  // Of every unit's ways, at [unit × (stages + 1) + stage]:
  std::vector<int64_t> forward_before;   // forward and transfers to reach the stage
  std::vector<int64_t> backward_before;  // backward of the stages before it
  // Of the stages before it that take backward: the most by which what follows one of their
  // backwards exceeds the stage's own backward_before; kNothing if there is none.
  std::vector<int64_t> latest_before;

  [[nodiscard]] std::size_t number(int unit, int stage) const {
    return at(unit) * (stages.size() + 1) + at(stage);
  }
};

// Which operations the bound counts.
enum class Mode : std::uint8_t {
  kFused,        // backward is one operation
  kSplitWork,    // all work, nothing after a lane's last operation: it may be a weight half
  kSplitInputs,  // only forwards and input gradients, with the operations that must follow the last
                 // one
};

// A backward path through stages: each may be followed by its own weight half and its lane's
// reduction, while the path continues.
struct WayBack {
  int64_t length = 0;  // to the end of the last backward
  int64_t latest = 0;  // to the end of all that follows any of them

  // Time after this path.
  [[nodiscard]] int64_t latest_with(int64_t latest_behind) const {
    return std::max(latest, length + latest_behind);
  }
};

// What one sample needs of one lane.
struct Demand {
  int64_t work = 0;
  int64_t head = kNever;
  int64_t tail = kNever;
};

class Bound {
 public:
  // `forwards_only`: only encoders' lanes, counting forwards and the time after the last one.
  Bound(const Plan& plan, const StepCosts& costs, Mode mode, bool forwards_only)
      : plan_(plan),
        costs_(costs),
        mode_(mode),
        forwards_only_(forwards_only),
        llm_(costs.llm_module()) {
    for (int m = 0; m <= llm_; ++m) {
      Module& module = modules_.emplace_back();
      module.first_backward = static_cast<int>(costs.modules[at(m)].stages.size());
      for (int s = 0; s < static_cast<int>(costs.modules[at(m)].stages.size()); ++s) {
        const StageCosts& stage = costs.modules[at(m)].stages[at(s)];
        module.stages.push_back(&stage);
        module.lane.push_back(plan.lane_of(m, s));
        if (stage.trainable) {
          module.first_backward = std::min(module.first_backward, s);
          module.trainable = true;
        }
      }
    }
    for (int lane = 0; lane < plan.num_lanes(); ++lane) {
      // Of an overlapped reduction, only a little certainly follows compute.
      const bool at_the_end = plan.replicas > 1 && costs.reduce_buckets == 0;
      reduce_.push_back(at_the_end ? sum_on_lane(lane, &StageCosts::reduce) : 0);
    }
    for (int m = 0; m < llm_; ++m) {
      measure_ways(m);
    }
    collect_samples();
    measure_ways(llm_);
  }

  [[nodiscard]] int64_t run() const {
    int64_t bound = mode_ == Mode::kSplitWork ? 0 : longest_chain();
    for (int lane = 0; lane < plan_.num_lanes(); ++lane) {
      bound = std::max(bound, lane_bound_of(lane));
    }
    int64_t optimizer = 0;
    for (int lane = 0; lane < plan_.num_lanes(); ++lane) {
      optimizer = std::max(optimizer, sum_on_lane(lane, &StageCosts::optimizer));
    }
    return bound + optimizer;
  }

 private:
  // The parts of a sample's way that do not depend on the lane in question.
  struct Sample {
    bool llm_backward = false;     // certain on every LLM stage: its features are trainable
    int64_t encoder_forward = 0;   // longest way of a segment up to the LLM's first stage
    int64_t encoder_backward = 0;  // longest backward path, to the end of the operations after it
    int64_t least_encoder_forward = 0;  // shortest way of a segment
  };

  [[nodiscard]] int64_t sum_on_lane(int lane, std::chrono::nanoseconds StageCosts::*field) const {
    int64_t sum = 0;
    for (const StageRef& ref : plan_.lanes[at(lane)]) {
      sum += (modules_[at(ref.module)].stages[at(ref.stage)]->*field).count();
    }
    return sum;
  }

  // Where a sample's LLM work may be cut, what others wait for is a chunk: its launch is certain.
  [[nodiscard]] bool cut(int m) const { return m == llm_ && plan_.limits.chunks; }
  [[nodiscard]] int64_t forward(int m, int s, int unit) const {
    const StageCosts& stage = *modules_[at(m)].stages[at(s)];
    if (cut(m)) {
      return stage.launch.forward.count();
    }
    return (stage.units[at(unit)].time.forward + stage.launch.forward).count();
  }
  // On the backward path from the loss.
  [[nodiscard]] int64_t backward(int m, int s, int unit) const {
    const StageCosts& stage = *modules_[at(m)].stages[at(s)];
    const OperationTimes& time = stage.units[at(unit)].time;
    if (cut(m)) {
      return (mode_ == Mode::kFused ? stage.launch.backward() : stage.launch.backward_input)
          .count();
    }
    if (mode_ == Mode::kFused) {
      return (time.backward() + stage.launch.backward()).count();
    }
    // Without an input gradient the operation is all weight gradient.
    return time.backward_input.count() > 0
               ? (time.backward_input + stage.launch.backward_input).count()
               : 0;
  }
  // What follows the input gradient at a stage on its lane: the weight half and the reduction.
  [[nodiscard]] int64_t behind(int m, int s, int unit) const {
    const StageCosts& stage = *modules_[at(m)].stages[at(s)];
    const int64_t weight = mode_ == Mode::kSplitInputs && !cut(m)
                               ? stage.units[at(unit)].time.backward_weight.count()
                               : 0;
    return weight + reduce_[at(modules_[at(m)].lane[at(s)])];
  }
  // From the end of a forward at this stage to its arrival at the next one.
  [[nodiscard]] int64_t transfer(int m, int s, int unit) const {
    const Module& module = modules_[at(m)];
    const bool last = s + 1 == static_cast<int>(module.stages.size());
    if (last && m == llm_) {
      return 0;
    }
    if (cut(m)) {
      return 0;
    }
    const int next = last ? modules_[at(llm_)].lane[0] : module.lane[at(s + 1)];
    if (next == module.lane[at(s)]) {
      return 0;
    }
    return transfer_time(costs_.link, module.stages[at(s)]->units[at(unit)].output_bytes).count();
  }
  // Prefix sums over every unit's stages, for many ranges.
  void measure_ways(int m) {
    Module& module = modules_[at(m)];
    const int units = costs_.modules[at(m)].first_unit.back();
    const std::size_t size = at(units) * (module.stages.size() + 1);
    module.forward_before.assign(size, 0);
    module.backward_before.assign(size, 0);
    module.latest_before.assign(size, kNothing);
    for (int unit = 0; unit < units; ++unit) {
      const int first = m == llm_ ? first_llm_backward(unit) : module.first_backward;
      for (int s = 0; s < num_stages(m); ++s) {
        const std::size_t here = module.number(unit, s);
        module.forward_before[here + 1] =
            module.forward_before[here] + forward(m, s, unit) + transfer(m, s, unit);
        const bool takes_part = s >= first;
        module.backward_before[here + 1] =
            module.backward_before[here] + (takes_part ? backward(m, s, unit) : 0);
        module.latest_before[here + 1] =
            takes_part ? std::max(module.latest_before[here],
                                  behind(m, s, unit) - module.backward_before[here])
                       : kNothing;
      }
    }
  }

  // Forward through stages [0, end), arrival at stage `end` included.
  [[nodiscard]] int64_t forward_until(int m, int end, int unit) const {
    return modules_[at(m)].forward_before[modules_[at(m)].number(unit, end)];
  }
  [[nodiscard]] int64_t forward_from(int m, int begin, int unit) const {
    return forward_until(m, num_stages(m), unit) - forward_until(m, begin, unit);
  }
  // Backward through the stages before `end` that certainly take it.
  [[nodiscard]] WayBack way_back(int m, int end, int unit) const {
    const Module& module = modules_[at(m)];
    const std::size_t here = module.number(unit, end);
    const int64_t latest = module.latest_before[here];
    return {module.backward_before[here],
            latest == kNothing ? 0 : module.backward_before[here] + latest};
  }
  [[nodiscard]] int num_stages(int m) const {
    return static_cast<int>(modules_[at(m)].stages.size());
  }
  [[nodiscard]] int first_llm_backward(int sample) const {
    return samples_[at(sample)].llm_backward ? 0 : modules_[at(llm_)].first_backward;
  }

  template <class Visit>
  void for_each_unit(int m, int sample, Visit visit) const {
    const std::vector<int>& first = costs_.modules[at(m)].first_unit;
    for (int unit = first[at(sample)]; unit < first[at(sample + 1)]; ++unit) {
      visit(unit);
    }
  }

  void collect_samples() {
    samples_.resize(at(costs_.num_samples));
    for (int sample = 0; sample < costs_.num_samples; ++sample) {
      Sample& of = samples_[at(sample)];
      for (int m = 0; m < llm_; ++m) {
        for_each_unit(m, sample, [&](int unit) {
          of.llm_backward = of.llm_backward || modules_[at(m)].trainable;
          const int64_t way = forward_until(m, num_stages(m), unit);
          of.encoder_forward = std::max(of.encoder_forward, way);
          of.least_encoder_forward =
              of.least_encoder_forward == 0 ? way : std::min(of.least_encoder_forward, way);
          of.encoder_backward =
              std::max(of.encoder_backward, way_back(m, num_stages(m), unit).latest);
        });
      }
    }
  }

  // LLM forward and backward of a sample over all stages, and an encoder's backward path of which
  // `encoder_latest` is known.
  [[nodiscard]] int64_t llm_round_trip(int sample, int64_t encoder_latest) const {
    const WayBack way = way_back(llm_, num_stages(llm_), sample);
    return forward_until(llm_, num_stages(llm_), sample) + way.latest_with(encoder_latest);
  }

  [[nodiscard]] int64_t longest_chain() const {
    int64_t longest = 0;
    for (int sample = 0; sample < costs_.num_samples; ++sample) {
      const Sample& of = samples_[at(sample)];
      longest = std::max(longest, of.encoder_forward + llm_round_trip(sample, of.encoder_backward));
    }
    return longest;
  }

  // Stages of a module on a lane: the lowest and the highest; -1 if there are none.
  struct Span {
    int low = -1;
    int high = -1;
    int low_backward = -1;  // lowest that takes backward by the module's own weights
  };
  [[nodiscard]] Span span_on(int m, int lane) const {
    Span span;
    const Module& module = modules_[at(m)];
    for (int s = 0; s < num_stages(m); ++s) {
      if (module.lane[at(s)] == lane) {
        span.low = span.low < 0 ? s : span.low;
        span.high = s;
        if (s >= module.first_backward && span.low_backward < 0) {
          span.low_backward = s;
        }
      }
    }
    return span;
  }

  void add_encoder(int sample, int m, const Span& span, bool llm_here, Demand& demand) const {
    for_each_unit(m, sample, [&](int unit) {
      demand.head = std::min(demand.head, forward_until(m, span.low, unit));
      if (span.low_backward >= 0 && !forwards_only_) {
        demand.tail = std::min(demand.tail, way_back(m, span.low_backward, unit).latest);
      } else if (!llm_here) {
        // Its forward is the last that this lane sees of it.
        const WayBack back = way_back(m, num_stages(m), unit);
        demand.tail = std::min(demand.tail,
                               transfer(m, span.high, unit) + forward_from(m, span.high + 1, unit) +
                                   llm_round_trip(sample, back.latest));
      }
    });
  }

  [[nodiscard]] int lowest_llm_backward_on(int lane, const Span& span, int sample) const {
    for (int s = std::max(span.low, first_llm_backward(sample)); s <= span.high; ++s) {
      if (modules_[at(llm_)].lane[at(s)] == lane) {
        return s;
      }
    }
    return -1;
  }

  void add_llm(int sample, int lane, const Span& span, bool encoder_here, Demand& demand) const {
    const Sample& of = samples_[at(sample)];
    if (!encoder_here) {
      const int64_t features = cut(llm_) ? of.least_encoder_forward : of.encoder_forward;
      demand.head = std::min(demand.head, features + forward_until(llm_, span.low, sample));
    }
    const int low = lowest_llm_backward_on(lane, span, sample);
    if (low < 0) {
      demand.tail = 0;  // whether a backward follows hangs on the slot's other samples
      return;
    }
    demand.tail = std::min(
        demand.tail, way_back(llm_, low, sample).latest_with(cut(llm_) ? 0 : of.encoder_backward));
  }

  [[nodiscard]] int64_t work_on(
      int m, int lane, const Span& span, int unit, int first_backward) const {
    int64_t work = 0;
    const Module& module = modules_[at(m)];
    for (int s = span.low; s <= span.high; ++s) {
      if (module.lane[at(s)] == lane) {
        const OperationTimes& time = module.stages[at(s)]->units[at(unit)].time;
        work += time.forward.count();
        if (s >= first_backward && !forwards_only_) {
          work += (mode_ == Mode::kSplitInputs ? time.backward_input : time.backward()).count();
        }
      }
    }
    return work;
  }

  [[nodiscard]] Demand demand_of(int sample, int lane, const std::vector<Span>& spans) const {
    Demand demand;
    bool encoder_here = false;
    bool encoder_backward_here = false;
    const bool llm_here = spans[at(llm_)].low >= 0;
    for (int m = 0; m < llm_; ++m) {
      const std::vector<int>& first = costs_.modules[at(m)].first_unit;
      if (spans[at(m)].low < 0 || first[at(sample)] == first[at(sample + 1)]) {
        continue;
      }
      encoder_here = true;
      encoder_backward_here = encoder_backward_here || spans[at(m)].low_backward >= 0;
      add_encoder(sample, m, spans[at(m)], llm_here, demand);
      for_each_unit(m, sample, [&](int unit) {
        demand.work += work_on(m, lane, spans[at(m)], unit, modules_[at(m)].first_backward);
      });
    }
    if (llm_here) {
      const int64_t of_encoders = demand.tail;
      add_llm(sample, lane, spans[at(llm_)], encoder_here, demand);
      if (encoder_backward_here) {
        demand.tail = std::min(demand.tail, of_encoders);
      }
      demand.work += work_on(llm_, lane, spans[at(llm_)], sample, first_llm_backward(sample));
    }
    if (mode_ == Mode::kSplitWork) {
      demand.tail = 0;
    }
    return demand;
  }

  [[nodiscard]] int64_t lane_bound_of(int lane) const {
    std::vector<Span> spans;
    for (int m = 0; m <= llm_; ++m) {
      spans.push_back(span_on(m, lane));
    }
    if (forwards_only_ && spans[at(llm_)].low >= 0) {
      return 0;
    }
    std::vector<Demand> demands;
    for (int sample = 0; sample < costs_.num_samples; ++sample) {
      const Demand demand = demand_of(sample, lane, spans);
      if (demand.head < kNever) {
        demands.push_back(demand);
      }
    }
    std::stable_sort(demands.begin(), demands.end(), [](const Demand& a, const Demand& b) {
      return a.work > b.work;
    });
    return best_threshold(demands, reduce_[at(lane)]);
  }

  // demands: by falling work; T runs over its prefixes.
  [[nodiscard]] int64_t best_threshold(const std::vector<Demand>& demands, int64_t reduce) const {
    const auto replicas = static_cast<int64_t>(plan_.replicas);
    std::vector<int64_t> sums{0};
    int64_t bound = 0;
    int64_t held = 0;  // R(T)
    int64_t head = kNever;
    int64_t tail = kNever;
    for (std::size_t i = 0; i < demands.size(); ++i) {
      sums.push_back(sums.back() + demands[i].work);
      head = std::min(head, demands[i].head);
      tail = std::min(tail, demands[i].tail);
      held = std::max(held, (sums.back() + replicas - 1) / replicas);
      if (static_cast<int64_t>(i) % replicas == 0) {
        const std::size_t together = i / static_cast<std::size_t>(replicas) + 1;
        held = std::max(held, sums[i + 1] - sums[i + 1 - together]);
      }
      bound = std::max(bound, head + held + std::max(tail, reduce));
    }
    return bound;
  }

  const Plan& plan_;
  const StepCosts& costs_;
  Mode mode_;
  bool forwards_only_;
  int llm_;
  std::vector<Module> modules_;
  std::vector<Sample> samples_;
  std::vector<int64_t> reduce_;  // [lane]
};

}  // namespace

std::chrono::nanoseconds step_lower_bound(const Plan& plan,
                                          const StepCosts& costs,
                                          std::string_view schedule) {
  const auto bound = [&](Mode mode, bool forwards_only) {
    return std::chrono::nanoseconds{Bound(plan, costs, mode, forwards_only).run()};
  };
  if (!splits_backward(schedule)) {
    return std::max(bound(Mode::kFused, false), bound(Mode::kFused, true));
  }
  return std::max({bound(Mode::kSplitWork, false),
                   bound(Mode::kSplitInputs, false),
                   bound(Mode::kSplitInputs, true)});
}

}  // namespace entrain
