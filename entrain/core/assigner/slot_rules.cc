#include "entrain/core/assigner/slot_rules.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/base/digest.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

constexpr int kFewSegments = 16;  // of a sample, in the mean

// The step of even slots by the classical formula for 1F1B, of one replica on lanes that are all
// like its slowest one.
class ClassicalStep {
 public:
  ClassicalStep(const AssignRequest& request,
                const BatchLoads& loads,
                const std::vector<int>& samples)
      : lanes_(request.plan->num_lanes()) {
    for (std::size_t i = 0; i < loads.lanes.size(); ++i) {
      for (const int sample : samples) {
        work_[i] += loads.sample[at(sample)][i];
      }
      for (const StageRef& ref : request.plan->lanes[at(loads.lanes[i])]) {
        const OperationTimes& launch =
            request.costs->modules[at(ref.module)].stages[at(ref.stage)].launch;
        launch_[i] += static_cast<double>((launch.forward + launch.backward()).count());
      }
    }
  }

  // Nanoseconds.
  [[nodiscard]] double of(int num_slots) const {
    double slot = 0;
    for (std::size_t i = 0; i < work_.size(); ++i) {
      slot = std::max(slot, work_[i] / num_slots + launch_[i]);
    }
    return (num_slots + lanes_ - 1) * slot;
  }

  // The fastest of up to so many slots.
  [[nodiscard]] int fastest(int most) const {
    int result = 1;
    for (int num_slots = 2; num_slots <= most; ++num_slots) {
      result = of(num_slots) < of(result) ? num_slots : result;
    }
    return result;
  }

 private:
  int lanes_;
  Load work_{};
  Load launch_{};
};

// For the ablation of the order of slots.
void shuffle_slots(const AssignRequest& request, int replica, Placement& placement) {
  std::vector<int> to(at(placement.num_slots[at(replica)]));
  for (std::size_t slot = 0; slot < to.size(); ++slot) {
    to[slot] = static_cast<int>(slot);
  }
  Rng rng(request.seed, hash_of("assigner/slot-order"));
  rng.shuffle(std::span<int>(to));
  for (const int sample : placement.samples[at(replica)]) {
    place_sample(*request.costs, sample, to[at(placement.llm_slot[at(sample)])], placement);
  }
}

// Finds the rule for one replica; the placement keeps the best one's slots.
class RuleChooser {
 public:
  RuleChooser(const AssignRequest& request,
              const BatchLoads& loads,
              StepEvaluator& evaluator,
              int replica,
              Placement& placement)
      : request_(request),
        loads_(loads),
        evaluator_(evaluator),
        replica_(replica),
        placement_(placement),
        num_samples_(static_cast<int>(placement.samples[at(replica)].size())),
        slot_counts_(slot_counts(request, loads, placement.samples[at(replica)])) {
    for (const int sample : placement.samples[at(replica)]) {
      num_text_ += loads.text_only[at(sample)];
      for (int module = 0; module < request.costs->llm_module(); ++module) {
        const std::vector<int>& first = request.costs->modules[at(module)].first_unit;
        num_segments_ += first[at(sample + 1)] - first[at(sample)];
      }
    }
  }

  RuleResult run(const RuleSearch& search) {
    budget_ = search.budget;
    if (search.start != nullptr) {
      best_ = rule_for(*search.start, num_samples_);
    } else {
      best_.num_slots = request_.options.choose_slots && budget_ > 0
                            ? slot_counts_.front()
                            : std::min(request_.plan->num_slots, num_samples_);
      best_.shape = request_.options.shape ? kTriangle : kFlat;
    }
    place(best_);
    times_ = evaluator_.evaluate(placement_, replica_);
    if (request_.options.choose_slots) {
      search.start != nullptr ? choose_near_slots() : choose_slots();
    }
    if (num_segments_ <= kFewSegments * num_samples_) {
      consider_spread();
      if (best_.spread_segments && request_.options.choose_slots) {
        choose_slots();
      }
    }
    choose_order(RuleSet::kAll);
    if (request_.options.shape) {
      choose_shape();
    }
    if (request_.options.slot_order && !loads_.unit.empty()) {
      choose_ratio_order();
    }
    choose_order(RuleSet::kNear);
    if (request_.options.shape && !best_.by_ratio) {
      choose_lead();
      choose_text_slots();
    }
    consider_spread();
    const EntrainOptions& options = request_.options;
    if ((!times_.fits() || (search.beyond && times_.total_ns - times_.total_ns / 20 > over_ns_)) &&
        options.slot_bytes && options.shape && options.choose_slots) {
      choose_within_bytes();
    }
    if (!times_.fits()) {
      least_memory();
    }
    place(best_);
    return {best_, times_, std::max(0, evaluator_.evaluations() - budget_)};
  }

 private:
  void place(const SlotRule& rule) { place_by_rule(request_, loads_, replica_, rule, placement_); }

  // Where the schedule leaves a choice: the rule by which lanes are ordered.
  void choose_order(RuleSet among) {
    if (evaluator_.evaluations() < budget_) {
      place(best_);
      times_ = evaluator_.choose_rule(placement_, replica_, among);
    }
  }

  void consider(const SlotRule& rule) {
    if ((evaluator_.evaluations() >= budget_ && !whatever_is_spent_) || rule == best_ ||
        rule.text_front + rule.text_back >= rule.num_slots) {
      return;
    }
    place(rule);
    // What is over the limit may be slower and still better.
    const std::int64_t stop_after =
        times_.fits() ? times_.total_ns : std::numeric_limits<std::int64_t>::max();
    const ReplicaTimes times = evaluator_.evaluate(placement_, replica_, stop_after);
    if (times.done && !times.fits()) {
      over_ns_ = std::min(over_ns_, times.total_ns);
    }
    if (times.done && better(times, times_)) {
      best_ = rule;
      times_ = times;
    }
  }

  // It can win the most of all. Where all samples have many segments it makes every later
  // placement slow, and comes last.
  void consider_spread() {
    if (request_.options.defer && request_.options.split_segments && !best_.by_ratio) {
      SlotRule rule = best_;
      rule.spread_segments = true;
      consider(rule);
    }
  }

  void choose_slots() {
    SlotRule rule = best_;
    for (const int count : slot_counts_) {
      rule.num_slots = count;
      consider(rule);
    }
  }

  // Outwards from the rule's own number: fewer, or where that loses more.
  void choose_near_slots() {
    std::vector<int> counts = slot_counts_;
    std::sort(counts.begin(), counts.end());
    const int own = best_.num_slots;
    const auto fewer = std::lower_bound(counts.begin(), counts.end(), own);
    for (auto next = std::make_reverse_iterator(fewer); next != counts.rend(); ++next) {
      if (!wins_with(*next)) {
        break;
      }
    }
    const auto more = std::upper_bound(counts.begin(), counts.end(), own);
    for (auto next = more; next != counts.end() && best_.num_slots >= own; ++next) {
      if (!wins_with(*next)) {
        break;
      }
    }
  }

  bool wins_with(int num_slots) {
    SlotRule rule = best_;
    rule.num_slots = num_slots;
    consider(rule);
    return best_.num_slots == num_slots;
  }

  void choose_shape() {
    const int num_slots = best_.num_slots;
    for (const SlotShape& shape : kSlopedShapes) {
      SlotRule rule = best_;
      rule.shape = shape;
      rule.num_slots = num_slots;
      consider(rule);
      if (request_.options.choose_slots) {
        rule.num_slots = std::min(num_samples_, num_slots + (num_slots + 2) / 4);
        consider(rule);
        rule.num_slots = std::max(1, num_slots - (num_slots + 2) / 4);
        consider(rule);
      }
    }
    SlotRule rule = best_;
    rule.shape = kFlat;
    consider(rule);
  }

  void choose_ratio_order() {
    const int num_slots = best_.num_slots;
    const SlotShape shape = best_.shape;
    for (const SlotShape tried : {shape, kRootTriangle, kFlat}) {
      SlotRule rule;
      rule.by_ratio = true;
      rule.shape = request_.options.shape ? tried : kFlat;
      rule.num_slots = num_slots;
      consider(rule);
      if (request_.options.choose_slots) {
        rule.num_slots = std::min(num_samples_, num_slots + (num_slots + 1) / 2);
        consider(rule);
        rule.num_slots = std::max(1, num_slots - (num_slots + 2) / 3);
        consider(rule);
      }
    }
  }

  void choose_lead() {
    for (const int lead : {4, 8, -4}) {
      SlotRule rule = best_;
      rule.lead = lead;
      consider(rule);
    }
  }

  void choose_text_slots() {
    if (num_text_ == 0 || num_text_ == num_samples_) {
      return;
    }
    const int encoder_stages =
        request_.plan->num_lanes() - static_cast<int>(request_.plan->modules.back().stages.size());
    for (const int front : {1, encoder_stages / 2, encoder_stages}) {
      SlotRule rule = best_;
      rule.text_front = std::max(1, front);
      rule.text_back = 0;
      consider(rule);
      rule.text_back = rule.text_front;
      consider(rule);
    }
  }

  // Slots as the limits allow, and the more of them the tighter these are; then one change after
  // the other of what is best.
  void choose_within_bytes() {
    whatever_is_spent_ = true;
    const SlotRule before = best_;
    for (const int percent : {100, 80}) {
      for (const SlotShape& shape : {kTriangle, kFlat}) {
        if (best_.bytes_percent == 0 || (best_ == before && !times_.fits())) {
          consider_within(percent, shape);
        }
      }
    }
    if (best_.bytes_percent == 0) {
      return;
    }
    const auto consider_with = [&](auto SlotRule::*member, const auto& value) {
      SlotRule rule = best_;
      rule.*member = value;
      consider(rule);
    };
    consider_with(&SlotRule::shape, kFlat);
    consider_with(&SlotRule::bytes_percent, best_.bytes_percent == 100 ? 90 : 60);
    consider_with(&SlotRule::shape, kRootTriangle);
    const int slots = best_.num_slots;
    consider_with(&SlotRule::num_slots, slots - slots / 5);
    consider_with(&SlotRule::num_slots, std::min(num_samples_, slots + slots / 5));
    if (request_.options.defer && request_.options.split_segments) {
      consider_with(&SlotRule::spread_heavy, 1);
      consider_with(&SlotRule::spread_heavy, 2);
    }
  }

  void consider_within(int percent, const SlotShape& shape) {
    for (const int slots_per_lane : {2, 3, 5, 8}) {
      SlotRule rule;
      rule.shape = shape;
      rule.bytes_percent = percent;
      rule.num_slots = std::min(num_samples_, slots_per_lane * request_.plan->num_lanes());
      consider(rule);
    }
  }

  // One sample a slot keeps the fewest bytes in flight.
  void least_memory() {
    whatever_is_spent_ = true;
    SlotRule rule;
    rule.num_slots = request_.options.choose_slots ? num_samples_ : best_.num_slots;
    for (const SlotShape& shape : kSlopedShapes) {
      rule.shape = shape;
      consider(rule);
    }
    rule.shape = kFlat;
    consider(rule);
  }

  const AssignRequest& request_;
  const BatchLoads& loads_;
  StepEvaluator& evaluator_;
  int replica_;
  Placement& placement_;
  int num_samples_;
  std::vector<int> slot_counts_;
  int num_text_ = 0;
  int num_segments_ = 0;
  int budget_ = 0;
  bool whatever_is_spent_ = false;  // the budget ends nothing
  std::int64_t over_ns_ = std::numeric_limits<std::int64_t>::max();
  SlotRule best_;
  ReplicaTimes times_;  // of best_
};

}  // namespace

std::vector<int> slot_counts(const AssignRequest& request,
                             const BatchLoads& loads,
                             const std::vector<int>& samples) {
  constexpr int kFew[] = {3, 5};
  const int lanes = request.plan->num_lanes();
  std::vector<int> counts(std::begin(kFew), std::end(kFew));
  counts.push_back(request.plan->num_slots);
  for (const int halves : {2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32}) {
    counts.push_back(std::max(1, lanes * halves / 2));
  }
  const ClassicalStep step(request, loads, samples);
  const int fastest = step.fastest(lanes / 2);
  if (fastest > kFew[1] && fastest < lanes / 2) {
    counts.push_back(fastest);
  }
  for (int& count : counts) {
    count = std::min(count, static_cast<int>(samples.size()));
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  std::stable_sort(
      counts.begin(), counts.end(), [&](int a, int b) { return step.of(a) < step.of(b); });
  return counts;
}

RuleResult choose_slot_rule(const AssignRequest& request,
                            const BatchLoads& loads,
                            StepEvaluator& evaluator,
                            int replica,
                            const RuleSearch& search,
                            Placement& placement) {
  return RuleChooser(request, loads, evaluator, replica, placement).run(search);
}

SlotRule neighbour_of(
    const SlotRule& rule, const EntrainOptions& options, int num_samples, bool has_text, Rng& rng) {
  constexpr int kMostSlots = 4;
  constexpr int kMostSlope = 5;  // 24ths
  const auto within = [&](int most) {
    const int size = 1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(most)));
    return rng.below(2) == 0 ? -size : size;
  };
  SlotRule result = rule;
  const std::uint64_t part = rng.below(8);
  if (part < 2) {
    const int slots = rule.num_slots + within(kMostSlots);
    result.num_slots = options.choose_slots ? std::clamp(slots, 1, num_samples) : rule.num_slots;
    return rule_for(result, num_samples);
  }
  if (!options.shape) {
    return rule;
  }
  if (part < 4) {
    int& slope = part == 2 ? result.shape.rise : result.shape.fall;
    slope = std::clamp(slope + within(kMostSlope), 0, 24);
    return result;
  }
  if (part >= 6 && !rule.by_ratio) {
    result.lead = std::clamp(result.lead + within(kMostSlope), -12, 12);
    return result;
  }
  if (has_text && !rule.by_ratio) {
    int& reserved = part == 4 ? result.text_front : result.text_back;
    reserved = std::max(0, reserved + within(1));
  }
  return result.text_front + result.text_back < result.num_slots ? result : rule;
}

void place_by_rule(const AssignRequest& request,
                   const BatchLoads& loads,
                   int replica,
                   const SlotRule& rule,
                   Placement& placement) {
  place_in_slots(*request.plan, loads, *request.costs, replica, rule, placement);
  if (!request.options.slot_order) {
    shuffle_slots(request, replica, placement);
  }
}

}  // namespace entrain
