#include "entrain/core/assigner/lower_bound.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <vector>

#include "entrain/core/assigner/passing_bound.h"
#include "entrain/core/assigner/ways.h"
#include "entrain/core/base/at.h"
#include "entrain/core/schedule/schedule.h"

namespace entrain {
namespace {

using std::int64_t;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;

// What one sample needs of one lane.
struct Demand {
  int64_t work = 0;
  int64_t head = kNever;
  int64_t tail = kNever;
};

class Bound {
 public:
  // `forwards_only`: only encoders' lanes, counting forwards and the time after the last one.
  // ways: of that mode.
  Bound(const Plan& plan,
        const StepCosts& costs,
        const Ways& ways,
        BoundMode mode,
        bool forwards_only)
      : plan_(plan),
        costs_(costs),
        mode_(mode),
        forwards_only_(forwards_only),
        ways_(ways),
        llm_(ways_.llm()) {}

  [[nodiscard]] int64_t run() const {
    int64_t bound = mode_ == BoundMode::kSplitWork ? 0 : longest_chain();
    std::vector<PassedLane> lanes;
    for (int lane = 0; lane < plan_.num_lanes(); ++lane) {
      const std::vector<Demand> demands = demands_on(lane);
      bound = std::max(bound, lane_bound_of(lane, demands));
      lanes.push_back(passed(lane, demands));
    }
    if (mode_ != BoundMode::kSplitWork && !plan_.limits.chunks) {
      bound = passing_bound_of(lanes, bound);
    }
    return bound + ways_.slowest_optimizer();
  }

 private:
  [[nodiscard]] int64_t longest_chain() const {
    int64_t longest = 0;
    for (int sample = 0; sample < costs_.num_samples; ++sample) {
      const Ways::Sample& of = ways_.sample(sample);
      longest =
          std::max(longest, of.encoder_forward + ways_.llm_round_trip(sample, of.encoder_backward));
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
    const Ways::Module& module = ways_.module(m);
    for (int s = 0; s < ways_.num_stages(m); ++s) {
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
    ways_.for_each_run(m, sample, [&](int unit, int /*count*/) {
      demand.head = std::min(demand.head, ways_.forward_until(m, span.low, unit));
      if (span.low_backward >= 0 && !forwards_only_) {
        demand.tail = std::min(demand.tail, ways_.way_back(m, span.low_backward, unit).latest);
      } else if (!llm_here) {
        // Its forward is the last that this lane sees of it.
        const WayBack back = ways_.way_back(m, ways_.num_stages(m), unit);
        demand.tail = std::min(demand.tail,
                               ways_.transfer(m, span.high, unit) +
                                   ways_.forward_from(m, span.high + 1, unit) +
                                   ways_.llm_round_trip(sample, back.latest));
      }
    });
  }

  [[nodiscard]] int lowest_llm_backward_on(int lane, const Span& span, int sample) const {
    for (int s = std::max(span.low, ways_.first_llm_backward(sample)); s <= span.high; ++s) {
      if (ways_.module(llm_).lane[at(s)] == lane) {
        return s;
      }
    }
    return -1;
  }

  void add_llm(int sample, int lane, const Span& span, bool encoder_here, Demand& demand) const {
    const Ways::Sample& of = ways_.sample(sample);
    if (!encoder_here) {
      const int64_t features = ways_.cut(llm_) ? of.least_encoder_forward : of.encoder_forward;
      demand.head = std::min(demand.head, features + ways_.forward_until(llm_, span.low, sample));
    }
    const int low = lowest_llm_backward_on(lane, span, sample);
    if (low < 0) {
      demand.tail = 0;  // whether a backward follows hangs on the slot's other samples
      return;
    }
    demand.tail = std::min(
        demand.tail,
        ways_.way_back(llm_, low, sample).latest_with(ways_.cut(llm_) ? 0 : of.encoder_backward));
  }

  [[nodiscard]] int64_t work_on(
      int m, int lane, const Span& span, int unit, int first_backward) const {
    int64_t work = 0;
    const Ways::Module& module = ways_.module(m);
    for (int s = span.low; s <= span.high; ++s) {
      if (module.lane[at(s)] == lane) {
        const OperationTimes& time = module.stages[at(s)]->units[at(unit)].time;
        work += time.forward.count();
        if (s >= first_backward && !forwards_only_) {
          work +=
              (mode_ == BoundMode::kSplitInputs ? time.backward_input : time.backward()).count();
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
      ways_.for_each_run(m, sample, [&](int unit, int count) {
        demand.work += count * work_on(m, lane, spans[at(m)], unit, ways_.module(m).first_backward);
      });
    }
    if (llm_here) {
      const int64_t of_encoders = demand.tail;
      add_llm(sample, lane, spans[at(llm_)], encoder_here, demand);
      if (encoder_backward_here) {
        demand.tail = std::min(demand.tail, of_encoders);
      }
      demand.work += work_on(llm_, lane, spans[at(llm_)], sample, ways_.first_llm_backward(sample));
    }
    if (mode_ == BoundMode::kSplitWork) {
      demand.tail = 0;
    }
    return demand;
  }

  // Of every sample; those without an operation on the lane have no head.
  [[nodiscard]] std::vector<Demand> demands_on(int lane) const {
    std::vector<Span> spans;
    for (int m = 0; m <= llm_; ++m) {
      spans.push_back(span_on(m, lane));
    }
    std::vector<Demand> demands(at(costs_.num_samples));
    if (forwards_only_ && spans[at(llm_)].low >= 0) {
      return demands;
    }
    for (int sample = 0; sample < costs_.num_samples; ++sample) {
      demands[at(sample)] = demand_of(sample, lane, spans);
    }
    return demands;
  }

  [[nodiscard]] int64_t lane_bound_of(int lane, std::vector<Demand> demands) const {
    std::erase_if(demands, [](const Demand& demand) { return demand.head == kNever; });
    std::stable_sort(demands.begin(), demands.end(), [](const Demand& a, const Demand& b) {
      return a.work > b.work;
    });
    return best_threshold(demands, ways_.reduce(lane));
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

  [[nodiscard]] PassedLane passed(int lane, const std::vector<Demand>& demands) const {
    PassedLane of;
    int64_t head = kNever;
    int64_t tail = kNever;
    for (const Demand& demand : demands) {
      of.work.push_back(demand.work);
      if (demand.head < kNever) {
        head = std::min(head, demand.head);
        tail = std::min(tail, demand.tail);
      }
    }
    of.around = head == kNever ? 0 : head + std::max(tail, ways_.reduce(lane));
    return of;
  }

  // Adds operations of a unit's way through [first, stages) and, from `last_back` on, back.
  void pass(int m, int unit, int first, int last_back, PassingSample& way) const {
    for (int s = first; s < ways_.num_stages(m); ++s) {
      const OperationTimes& time = ways_.time(m, s, unit);
      way.length += ways_.forward(m, s, unit);
      way.least = std::min(way.least, time.forward.count());
      if (s >= last_back) {
        way.length += ways_.backward(m, s, unit);
        way.least =
            std::min(way.least,
                     (mode_ == BoundMode::kFused ? time.backward() : time.backward_input).count());
      }
    }
  }

  // What certainly follows a backward on a stage.
  [[nodiscard]] int64_t least_behind(int m, int s) const {
    int64_t least = kNever;
    costs_.modules[at(m)].for_each_run([&](std::size_t unit, int /*count*/) {
      least = std::min(least, ways_.way_back(m, s, static_cast<int>(unit)).latest);
    });
    return std::max(least == kNever ? 0 : least, ways_.reduce(ways_.module(m).lane[at(s)]));
  }

  // Through the LLM from a stage on, of every sample.
  [[nodiscard]] int64_t passing_llm(int first,
                                    const std::vector<PassedLane>& lanes,
                                    int64_t known) const {
    std::vector<PassingSample> ways;
    int64_t head = kNever;
    for (int sample = 0; sample < costs_.num_samples; ++sample) {
      ways.push_back({.least = kNever});
      pass(llm_, sample, first, first, ways.back());
      head = std::min(
          head, ways_.sample(sample).encoder_forward + ways_.forward_until(llm_, first, sample));
    }
    return passing_bound(ways, head + least_behind(llm_, first), lanes, plan_.replicas, known);
  }

  // Through an encoder, the LLM and back to a stage of the encoder or, if it is frozen, of the LLM.
  [[nodiscard]] int64_t passing_encoder(int m,
                                        int last_back,
                                        const std::vector<PassedLane>& lanes,
                                        int64_t known) const {
    std::vector<PassingSample> ways(at(costs_.num_samples));
    const bool trainable = ways_.module(m).trainable;
    for (int sample = 0; sample < costs_.num_samples; ++sample) {
      PassingSample segments;
      ways_.for_each_run(m, sample, [&](int unit, int count) {
        PassingSample segment{.least = kNever};
        pass(m, unit, 0, trainable ? last_back : ways_.num_stages(m), segment);
        segments.length = std::max(segments.length, segment.length);
        segments.least += count * segment.least;
      });
      if (segments.length > 0) {
        pass(llm_, sample, 0, trainable ? 0 : last_back, segments);
        ways[at(sample)] = segments;
      }
    }
    const int64_t behind = least_behind(trainable ? m : llm_, last_back);
    return passing_bound(ways, behind, lanes, plan_.replicas, known);
  }

  // Where a split backward's first stage has no input gradient, the way that ends one stage before
  // may say more.
  [[nodiscard]] int64_t passing_bound_of(const std::vector<PassedLane>& lanes,
                                         int64_t known) const {
    for (const int more : {0, 1}) {
      const int llm_first = ways_.module(llm_).first_backward + more;
      if (llm_first < ways_.num_stages(llm_)) {
        known = passing_llm(llm_first, lanes, known);
      }
      for (int m = 0; m < llm_; ++m) {
        const bool trainable = ways_.module(m).trainable;
        const int last = trainable ? ways_.module(m).first_backward + more : llm_first;
        if (last < ways_.num_stages(trainable ? m : llm_)) {
          known = passing_encoder(m, last, lanes, known);
        }
      }
    }
    return known;
  }

  const Plan& plan_;
  const StepCosts& costs_;
  BoundMode mode_;
  bool forwards_only_;
  const Ways& ways_;
  int llm_;
};

}  // namespace

std::chrono::nanoseconds step_lower_bound(const Plan& plan,
                                          const StepCosts& costs,
                                          std::string_view schedule) {
  const auto bound = [&](BoundMode mode, std::initializer_list<bool> forwards_only) {
    const Ways ways(plan, costs, mode);
    int64_t most = 0;
    for (const bool only : forwards_only) {
      most = std::max(most, Bound(plan, costs, ways, mode, only).run());
    }
    return std::chrono::nanoseconds{most};
  };
  if (!splits_backward(schedule)) {
    return bound(BoundMode::kFused, {false, true});
  }
  return std::max(bound(BoundMode::kSplitWork, {false}),
                  bound(BoundMode::kSplitInputs, {false, true}));
}

}  // namespace entrain
