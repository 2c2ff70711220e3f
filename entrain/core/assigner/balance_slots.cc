#include "entrain/core/assigner/balance_slots.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>
#include <span>

#include "entrain/core/base/random.h"

namespace entrain {
namespace {

constexpr std::size_t kMostFree = 10;  // units that a split tries in both slots
constexpr int kMostRounds = 16;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// Slots that a unit may lie in.
struct Range {
  int begin = 0;
  int last = 0;
  [[nodiscard]] bool holds(int slot) const { return begin <= slot && slot <= last; }
};

class SlotBalancer {
 public:
  SlotBalancer(const StepCosts& costs,
               const BalanceTimes& times,
               int replica,
               int max_deferral,
               Placement& placement)
      : costs_(costs),
        times_(times),
        llm_(costs.llm_module()),
        num_slots_(placement.num_slots[at(replica)]),
        max_deferral_(max_deferral < 0 ? num_slots_ : max_deferral),
        samples_(placement.samples[at(replica)]),
        placement_(placement),
        rng_(0, samples_.size()) {
    clear();
  }

  // Whole samples; a start for any limit of deferral.
  void start_with_samples() {
    clear();
    llm_placed_ = true;
    for (const int sample : falling_samples()) {
      int best = 0;
      double least = growth(0, sample);
      for (int slot = 1; slot < num_slots_; ++slot) {
        const double candidate = growth(slot, sample);
        if (candidate < least) {
          best = slot;
          least = candidate;
        }
      }
      put_sample(sample, best);
    }
    settle_samples();
    if (max_deferral_ > 0) {
      alternate_slots();
    }
  }

  // Encoders ahead of the LLM; needs unlimited deferral.
  void start_with_encoders_ahead() {
    clear();
    llm_placed_ = false;
    const std::vector<int> order = by_encoder_share();
    for (int module = 0; module < llm_; ++module) {
      deal_in_order(module, order);
      settle(module, kWindow);
    }
    llm_placed_ = true;
    std::vector<int> late = falling_llm();
    std::stable_sort(late.begin(), late.end(), [&](int a, int b) {
      return llm_range(a).begin > llm_range(b).begin;
    });
    for (const int sample : late) {
      put(llm_, first_unit(llm_, sample), least_loaded(llm_range(sample)));
    }
  }

  void improve() {
    bool improved = max_deferral_ > 0;
    for (int round = 0; improved && round < kMostRounds; ++round) {
      improved = false;
      for (int module = llm_; module >= 0; --module) {
        improved = settle(module, num_slots_) || improved;
      }
    }
  }

  // Sum over modules of squared loads in levels.
  [[nodiscard]] double score() const {
    double sum = 0;
    for (int module = 0; module <= llm_; ++module) {
      for (const std::int64_t load : load_[at(module)]) {
        sum += square(module, static_cast<double>(load));
      }
    }
    return sum;
  }

 private:
  static constexpr int kWindow = 3;  // slots over which a split may disturb the order of samples

  void clear() {
    load_.assign(at(llm_ + 1), std::vector<std::int64_t>(at(num_slots_), 0));
    members_.assign(at(llm_ + 1), std::vector<std::vector<int>>(at(num_slots_)));
    version_.assign(at(llm_ + 1), std::vector<int>(at(num_slots_), 1));
  }

  [[nodiscard]] double square(int module, double load) const {
    const double level = times_.level[at(module)];
    return level > 0 ? load / level * (load / level) : 0;
  }

  [[nodiscard]] std::int64_t time_of(int module, int unit) const {
    return times_.unit[at(module)][at(unit)];
  }
  [[nodiscard]] int& slot_of(int module, int unit) {
    return module == llm_ ? placement_.llm_slot[at(times_.sample_of[at(llm_)][at(unit)])]
                          : placement_.encoder_slot[at(module)][at(unit)];
  }
  [[nodiscard]] int first_unit(int module, int sample) const {
    return costs_.modules[at(module)].first_unit[at(sample)];
  }
  [[nodiscard]] std::int64_t time_of_sample(int module, int sample) const {
    const std::vector<std::int64_t>& unit = times_.unit[at(module)];
    return std::accumulate(unit.begin() + first_unit(module, sample),
                           unit.begin() + first_unit(module, sample + 1),
                           std::int64_t{0});
  }

  void put(int module, int unit, int slot) {
    slot_of(module, unit) = slot;
    load_[at(module)][at(slot)] += time_of(module, unit);
    members_[at(module)][at(slot)].push_back(unit);
  }
  void put_sample(int sample, int slot) {
    for (int module = 0; module <= llm_; ++module) {
      for (int unit = first_unit(module, sample); unit < first_unit(module, sample + 1); ++unit) {
        put(module, unit, slot);
      }
    }
  }

  [[nodiscard]] std::vector<int> falling_samples() const {
    std::vector<double> total;
    for (const int sample : samples_) {
      double sum = 0;
      for (int module = 0; module <= llm_; ++module) {
        sum += times_.counted(costs_, module, sample);
      }
      total.push_back(sum);
    }
    return sorted(total, [](double a, double b) { return a > b; });
  }
  [[nodiscard]] std::vector<int> falling_llm() const {
    std::vector<double> total;
    for (const int sample : samples_) {
      total.push_back(static_cast<double>(time_of_sample(llm_, sample)));
    }
    return sorted(total, [](double a, double b) { return a > b; });
  }
  // Rising share of the encoders in the sample's counted work.
  [[nodiscard]] std::vector<int> by_encoder_share() const {
    std::vector<double> share;
    for (const int sample : samples_) {
      double encoders = 0;
      for (int module = 0; module < llm_; ++module) {
        encoders += times_.counted(costs_, module, sample);
      }
      const double all = encoders + times_.counted(costs_, llm_, sample);
      share.push_back(all > 0 ? encoders / all : 0);
    }
    return sorted(share, [](double a, double b) { return a < b; });
  }
  // The replica's samples in the order of `key`, which has one entry for each.
  template <class Before>
  [[nodiscard]] std::vector<int> sorted(const std::vector<double>& key, Before before) const {
    std::vector<int> order(samples_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(
        order.begin(), order.end(), [&](int a, int b) { return before(key[at(a)], key[at(b)]); });
    for (int& entry : order) {
      entry = samples_[at(entry)];
    }
    return order;
  }

  [[nodiscard]] double growth(int slot, int sample) const {
    double sum = 0;
    for (int module = 0; module <= llm_; ++module) {
      const auto load = static_cast<double>(load_[at(module)][at(slot)]);
      const auto more = static_cast<double>(time_of_sample(module, sample));
      sum += square(module, load + more) - square(module, load);
    }
    return sum;
  }

  // Segments in the order of their samples, so that counted work rises evenly with the slot.
  void deal_in_order(int module, const std::vector<int>& order) {
    double total = 0;
    for (const int sample : order) {
      total += times_.counted(costs_, module, sample);
    }
    double before = 0;
    for (const int sample : order) {
      for (int unit = first_unit(module, sample); unit < first_unit(module, sample + 1); ++unit) {
        const double level = times_.level[at(module)];
        const double share =
            level > 0 ? std::min(1.0, static_cast<double>(time_of(module, unit)) / level) : 0;
        const double middle = total > 0 ? (before + share / 2) / total : 0;
        put(module, unit, std::min(num_slots_ - 1, static_cast<int>(middle * num_slots_)));
        before += share;
      }
    }
  }

  [[nodiscard]] int least_loaded(Range range) const {
    int best = range.last;
    for (int slot = range.last; slot >= range.begin; --slot) {
      if (load_[at(llm_)][at(slot)] < load_[at(llm_)][at(best)]) {
        best = slot;
      }
    }
    return best;
  }

  // Where the LLM work may lie, given the segments.
  [[nodiscard]] Range llm_range(int sample) const {
    Range range{0, num_slots_ - 1};
    for (int module = 0; module < llm_; ++module) {
      for (int unit = first_unit(module, sample); unit < first_unit(module, sample + 1); ++unit) {
        const int slot = placement_.encoder_slot[at(module)][at(unit)];
        range.begin = std::max(range.begin, slot);
        range.last = std::min(range.last, slot + max_deferral_);
      }
    }
    return range;
  }
  [[nodiscard]] Range range_of(int module, int unit) const {
    const int sample = times_.sample_of[at(module)][at(unit)];
    if (module == llm_) {
      return llm_range(sample);
    }
    if (!llm_placed_) {
      return {0, num_slots_ - 1};
    }
    const int slot = placement_.llm_slot[at(sample)];
    return {std::max(0, slot - max_deferral_), slot};
  }

  // Splits all pairs of slots up to `window` apart until none improves.
  bool settle(int module, int window) {
    std::vector<std::vector<int>> tried(at(num_slots_), std::vector<int>(at(num_slots_), 0));
    bool any = false;
    bool improved = true;
    while (improved) {
      improved = false;
      for (int a = 0; a < num_slots_; ++a) {
        for (int b = a + 1; b < num_slots_ && b - a <= window; ++b) {
          // The versions only grow, so that an equal sum means equal slots.
          const int version = version_[at(module)][at(a)] + version_[at(module)][at(b)];
          if (tried[at(a)][at(b)] != version) {
            tried[at(a)][at(b)] = version;
            improved = split(module, a, b) || improved;
          }
        }
      }
      any = any || improved;
    }
    return any;
  }

  // The best split of two slots' units; true where their loads come closer.
  bool split(int module, int a, int b) {
    const std::int64_t difference = load_[at(module)][at(a)] - load_[at(module)][at(b)];
    free_.clear();
    for (const int slot : {a, b}) {
      for (const int unit : members_[at(module)][at(slot)]) {
        const Range range = range_of(module, unit);
        if (range.holds(a) && range.holds(b) && time_of(module, unit) > 0) {
          free_.push_back(unit);
        }
      }
    }
    choose_free();
    // Gray code: one unit changes sides at a time.
    std::int64_t now = difference;
    std::int64_t least = std::abs(difference);
    unsigned best = 0;
    unsigned moved = 0;
    for (unsigned code = 1; code < 1U << free_.size(); ++code) {
      const unsigned bit = 1U << static_cast<unsigned>(std::countr_zero(code));
      const int unit = free_[static_cast<std::size_t>(std::countr_zero(code))];
      const bool in_a = (slot_of(module, unit) == a) == ((moved & bit) == 0);
      now += (in_a ? -2 : 2) * time_of(module, unit);
      moved ^= bit;
      if (std::abs(now) < least) {
        least = std::abs(now);
        best = moved;
      }
    }
    if (best == 0) {
      return false;
    }
    for (std::size_t i = 0; i < free_.size(); ++i) {
      if ((best >> i & 1U) != 0) {
        move(module, free_[i], slot_of(module, free_[i]) == a ? b : a);
      }
    }
    return true;
  }

  void choose_free() {
    if (free_.size() > kMostFree) {
      rng_.shuffle(std::span<int>(free_));
      free_.resize(kMostFree);
    }
  }

  void move(int module, int unit, int to) {
    const int from = slot_of(module, unit);
    std::vector<int>& members = members_[at(module)][at(from)];
    members.erase(std::find(members.begin(), members.end(), unit));
    load_[at(module)][at(from)] -= time_of(module, unit);
    put(module, unit, to);
    ++version_[at(module)][at(from)];
    ++version_[at(module)][at(to)];
  }

  // As settle(), for whole samples and all modules together; all samples undeferred.
  void settle_samples() {
    bool improved = true;
    for (int round = 0; improved && round < kMostRounds; ++round) {
      improved = false;
      for (int a = 0; a < num_slots_; ++a) {
        for (int b = a + 1; b < num_slots_; ++b) {
          improved = split_samples(a, b) || improved;
        }
      }
    }
  }

  bool split_samples(int a, int b) {
    free_.clear();
    for (const int slot : {a, b}) {
      for (const int unit : members_[at(llm_)][at(slot)]) {
        free_.push_back(times_.sample_of[at(llm_)][at(unit)]);
      }
    }
    choose_free();
    const std::size_t modules = at(llm_ + 1);
    std::vector<double> now(modules, 0);               // difference of both slots, in levels
    std::vector<double> step(modules * free_.size());  // change when the sample leaves slot a
    for (int module = 0; module <= llm_; ++module) {
      const double level = times_.level[at(module)];
      if (level <= 0) {
        continue;
      }
      now[at(module)] =
          static_cast<double>(load_[at(module)][at(a)] - load_[at(module)][at(b)]) / level;
      for (std::size_t i = 0; i < free_.size(); ++i) {
        step[i * modules + at(module)] =
            -2 * static_cast<double>(time_of_sample(module, free_[i])) / level;
      }
    }
    const auto squares = [&] {
      return std::inner_product(now.begin(), now.end(), now.begin(), 0.0);
    };
    double least = squares() * (1 - 1e-9);
    unsigned best = 0;
    unsigned moved = 0;
    for (unsigned code = 1; code < 1U << free_.size(); ++code) {
      const auto i = static_cast<std::size_t>(std::countr_zero(code));
      const bool in_a = (placement_.llm_slot[at(free_[i])] == a) == ((moved >> i & 1U) == 0);
      for (std::size_t module = 0; module < modules; ++module) {
        now[module] += in_a ? step[i * modules + module] : -step[i * modules + module];
      }
      moved ^= 1U << i;
      const double candidate = squares();
      if (candidate < least) {
        least = candidate;
        best = moved;
      }
    }
    for (std::size_t i = 0; i < free_.size(); ++i) {
      if ((best >> i & 1U) != 0) {
        move_sample(free_[i], placement_.llm_slot[at(free_[i])] == a ? b : a);
      }
    }
    return best != 0;
  }

  void move_sample(int sample, int to) {
    for (int module = 0; module <= llm_; ++module) {
      for (int unit = first_unit(module, sample); unit < first_unit(module, sample + 1); ++unit) {
        move(module, unit, to);
      }
    }
  }

  // Renames slots: heaviest LLM load, lightest, second heaviest, second lightest, …
  void alternate_slots() {
    std::vector<int> rank(at(num_slots_));
    std::iota(rank.begin(), rank.end(), 0);
    std::stable_sort(rank.begin(), rank.end(), [&](int a, int b) {
      return load_[at(llm_)][at(a)] > load_[at(llm_)][at(b)];
    });
    std::vector<int> slot_to(at(num_slots_));
    for (int i = 0; i < num_slots_; ++i) {
      const int from = rank[at(i % 2 == 0 ? i / 2 : num_slots_ - 1 - i / 2)];
      slot_to[at(from)] = i;
    }
    std::vector<int> slot_of_sample;
    for (const int sample : samples_) {
      slot_of_sample.push_back(slot_to[at(placement_.llm_slot[at(sample)])]);
    }
    clear();
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      put_sample(samples_[i], slot_of_sample[i]);
    }
  }

  const StepCosts& costs_;
  const BalanceTimes& times_;
  int llm_;
  int num_slots_;
  int max_deferral_;
  const std::vector<int>& samples_;
  Placement& placement_;
  Rng rng_;
  bool llm_placed_ = false;
  std::vector<std::vector<std::int64_t>> load_;         // [module][slot]
  std::vector<std::vector<std::vector<int>>> members_;  // [module][slot] units
  std::vector<std::vector<int>> version_;               // [module][slot]
  std::vector<int> free_;
};

}  // namespace

double BalanceTimes::counted(const StepCosts& costs, int module, int sample) const {
  double sum = 0;
  const std::vector<int>& first = costs.modules[at(module)].first_unit;
  for (int i = first[at(sample)]; level[at(module)] > 0 && i < first[at(sample + 1)]; ++i) {
    sum += std::min(1.0, static_cast<double>(unit[at(module)][at(i)]) / level[at(module)]);
  }
  return sum;
}

void balance_slots(const StepCosts& costs,
                   const BalanceTimes& times,
                   int replica,
                   int max_deferral,
                   Placement& placement) {
  SlotBalancer balancer(costs, times, replica, max_deferral, placement);
  balancer.start_with_samples();
  balancer.improve();
  const int num_slots = placement.num_slots[at(replica)];
  if (max_deferral >= 0 && max_deferral < num_slots - 1) {
    return;
  }
  const double score = balancer.score();
  const Placement whole_samples = placement;
  balancer.start_with_encoders_ahead();
  balancer.improve();
  if (score <= balancer.score()) {
    placement = whole_samples;
  }
}

}  // namespace entrain
