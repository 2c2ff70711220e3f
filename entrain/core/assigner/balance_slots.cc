#include "entrain/core/assigner/balance_slots.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "entrain/core/assigner/balance_loads.h"
#include "entrain/core/assigner/balance_split.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

constexpr int kCombinations = 1024;       // that a split of one module tries
constexpr int kJointCombinations = 6561;  // that a split of all modules tries: 8 samples, 3 options
constexpr int kMostRounds = 16;
// Of all splits of one start.
constexpr std::int64_t kMostCombinations = 4'000'000;
// What a split must save of the squared differences, in levels, summed over modules.
constexpr double kLeastGain = 1e-6;
constexpr int kWindow = 3;  // slots over which the order of samples may be disturbed

// What a split may move: a unit, or a sample with all its units in two slots.
struct Movable {
  int module = 0;  // -1: a whole sample
  int id = 0;      // unit or sample
  struct Places {
    int encoder = 0;  // slot of all its segments; of the unit, whatever its module
    int llm = 0;
  };
  std::vector<Places> options;  // the present one first
};

class SlotBalancer {
 public:
  SlotBalancer(const StepCosts& costs,
               const BalanceTimes& times,
               int replica,
               int max_deferral,
               Placement& placement)
      : state_(costs, times, replica, max_deferral, placement), rng_(0, state_.samples().size()) {}

  // Whole samples; a start for any limit of deferral.
  void start_with_samples() {
    state_.clear();
    llm_placed_ = true;
    for (const int sample : falling_samples()) {
      int best = 0;
      double least = growth(0, sample);
      for (int slot = 1; slot < state_.num_slots(); ++slot) {
        const double candidate = growth(slot, sample);
        if (candidate < least) {
          best = slot;
          least = candidate;
        }
      }
      state_.put_sample(sample, best);
    }
    if (state_.max_deferral() > 0) {
      alternate_slots();
    }
  }

  // Encoders ahead of the LLM; needs unlimited deferral. The order of samples may be disturbed over
  // `window` slots to balance the encoders first.
  void start_with_encoders_ahead(int window) {
    combinations_left_ = kMostCombinations;
    state_.clear();
    llm_placed_ = false;
    const std::vector<int> order = by_encoder_share();
    for (int module = 0; module < state_.llm(); ++module) {
      deal_in_order(module, order);
      settle(module, window);
    }
    llm_placed_ = true;
    std::vector<int> late = falling_llm();
    std::stable_sort(late.begin(), late.end(), [&](int a, int b) {
      return state_.llm_range(a).begin > state_.llm_range(b).begin;
    });
    for (const int sample : late) {
      state_.put(state_.llm(),
                 state_.first_unit(state_.llm(), sample),
                 least_loaded(state_.llm_range(sample)));
    }
  }

  void improve() {
    combinations_left_ = kMostCombinations;
    bool improved = true;
    for (int round = 0; improved && round < kMostRounds; ++round) {
      improved = false;
      for (int module = state_.llm(); module >= 0 && state_.max_deferral() > 0; --module) {
        improved = settle(module, state_.num_slots()) || improved;
      }
      improved = settle_joint() || improved;
    }
  }

  // Sum over modules of squared loads in levels.
  [[nodiscard]] double score() const { return state_.score(); }

  // Takes over a placement that another start has left.
  void reload() { state_.reload(); }

 private:
  [[nodiscard]] std::vector<int> falling_samples() const {
    std::vector<double> total;
    for (const int sample : state_.samples()) {
      double sum = 0;
      for (int module = 0; module <= state_.llm(); ++module) {
        sum += state_.counted(module, sample);
      }
      total.push_back(sum);
    }
    return sorted(total, [](double a, double b) { return a > b; });
  }
  [[nodiscard]] std::vector<int> falling_llm() const {
    std::vector<double> total;
    for (const int sample : state_.samples()) {
      total.push_back(static_cast<double>(state_.time_of_sample(state_.llm(), sample)));
    }
    return sorted(total, [](double a, double b) { return a > b; });
  }
  // Rising share of the encoders in the sample's counted work.
  [[nodiscard]] std::vector<int> by_encoder_share() const {
    std::vector<double> share;
    for (const int sample : state_.samples()) {
      double encoders = 0;
      for (int module = 0; module < state_.llm(); ++module) {
        encoders += state_.counted(module, sample);
      }
      const double all = encoders + state_.counted(state_.llm(), sample);
      share.push_back(all > 0 ? encoders / all : 0);
    }
    return sorted(share, [](double a, double b) { return a < b; });
  }
  // The replica's samples in the order of `key`, which has one entry for each.
  template <class Before>
  [[nodiscard]] std::vector<int> sorted(const std::vector<double>& key, Before before) const {
    std::vector<int> order(state_.samples().size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(
        order.begin(), order.end(), [&](int a, int b) { return before(key[at(a)], key[at(b)]); });
    for (int& entry : order) {
      entry = state_.samples()[at(entry)];
    }
    return order;
  }

  [[nodiscard]] double growth(int slot, int sample) const {
    double sum = 0;
    for (int module = 0; module <= state_.llm(); ++module) {
      const double load = state_.in_levels(module, state_.load(module, slot));
      const double more = state_.in_levels(module, state_.time_of_sample(module, sample));
      sum += more * (2 * load + more);
    }
    return sum;
  }

  // Segments in the order of their samples, so that counted work rises evenly with the slot.
  void deal_in_order(int module, const std::vector<int>& order) {
    double total = 0;
    for (const int sample : order) {
      total += state_.counted(module, sample);
    }
    double before = 0;
    for (const int sample : order) {
      for (int unit = state_.first_unit(module, sample);
           unit < state_.first_unit(module, sample + 1);
           ++unit) {
        const double share = std::min(1.0, state_.in_levels(module, state_.time_of(module, unit)));
        const double middle = total > 0 ? (before + share / 2) / total : 0;
        state_.put(module,
                   unit,
                   std::min(state_.num_slots() - 1, static_cast<int>(middle * state_.num_slots())));
        before += share;
      }
    }
  }

  [[nodiscard]] int least_loaded(SlotRange range) const {
    int best = range.last;
    for (int slot = range.last; slot >= range.begin; --slot) {
      if (state_.load(state_.llm(), slot) < state_.load(state_.llm(), best)) {
        best = slot;
      }
    }
    return best;
  }

  // Splits all pairs of slots up to `window` apart until none improves.
  bool settle(int module, int window) {
    std::vector<std::vector<int>> tried(at(state_.num_slots()),
                                        std::vector<int>(at(state_.num_slots()), 0));
    bool any = false;
    bool improved = true;
    while (improved) {
      improved = false;
      for (int a = 0; a < state_.num_slots(); ++a) {
        for (int b = a + 1; b < state_.num_slots() && b - a <= window; ++b) {
          // The versions only grow, so that an equal sum means equal slots.
          const int version = state_.version(module, a) + state_.version(module, b);
          if (tried[at(a)][at(b)] != version && worthwhile(a, b, module, module)) {
            tried[at(a)][at(b)] = version;
            improved = split(module, a, b) || improved;
          }
        }
      }
      any = any || improved;
    }
    return any;
  }

  // Whether a split of two slots can save enough, and may still be tried.
  [[nodiscard]] bool worthwhile(int a, int b, int first_module, int last_module) const {
    double sum = 0;
    for (int module = first_module; module <= last_module; ++module) {
      const double difference =
          state_.in_levels(module, state_.load(module, a) - state_.load(module, b));
      sum += difference * difference;
    }
    return sum > kLeastGain && combinations_left_ > 0;
  }

  // A unit of one slot that may be in either.
  void add_unit(int module, int unit, int a, int b) {
    const SlotRange range = state_.range_of(module, unit, llm_placed_);
    if (range.holds(a) && range.holds(b) && state_.time_of(module, unit) > 0) {
      const int now = state_.slot_of(module, unit);
      movables_.push_back({module, unit, {{now, now}, {a + b - now, a + b - now}}});
    }
  }

  // The best split of two slots of one module; true where their loads come closer.
  bool split(int module, int a, int b) {
    movables_.clear();
    for (const int slot : {a, b}) {
      for (const int unit : state_.members(module, slot)) {
        add_unit(module, unit, a, b);
      }
    }
    return apply_best(a, b, module, module, kCombinations);
  }

  // The best split of two slots of all modules. A sample with all its work in the two is placed
  // as a whole: both in the first, both in the second, or encoders first and LLM second.
  bool split_joint(int a, int b) {
    movables_.clear();
    std::vector<int> with_llm;  // samples with LLM work here: their segments stay or move along
    for (const int slot : {a, b}) {
      for (const int unit : state_.members(state_.llm(), slot)) {
        const int sample = state_.sample_of(state_.llm(), unit);
        const int encoder = state_.encoder_slot(sample);
        with_llm.push_back(sample);
        if (encoder != a && encoder != b) {
          add_unit(state_.llm(), unit, a, b);
          continue;
        }
        Movable& movable = movables_.emplace_back(Movable{-1, sample, {{encoder, slot}}});
        for (const Movable::Places places : {Movable::Places{a, a}, {a, b}, {b, b}}) {
          const bool present = places.encoder == encoder && places.llm == slot;
          if (!present && (places.encoder == places.llm || b - a <= state_.max_deferral())) {
            movable.options.push_back(places);
          }
        }
      }
    }
    std::sort(with_llm.begin(), with_llm.end());
    for (int module = 0; module < state_.llm() && state_.max_deferral() > 0; ++module) {
      for (const int slot : {a, b}) {
        for (const int unit : state_.members(module, slot)) {
          if (!std::binary_search(
                  with_llm.begin(), with_llm.end(), state_.sample_of(module, unit))) {
            add_unit(module, unit, a, b);
          }
        }
      }
    }
    return apply_best(a, b, 0, state_.llm(), kJointCombinations);
  }

  // Places as many movables as can be tried where the modules' differences are least.
  bool apply_best(int a, int b, int first_module, int last_module, int combinations) {
    const auto dimensions = at(last_module - first_module + 1);
    std::vector<double> difference;
    for (int module = first_module; module <= last_module; ++module) {
      difference.push_back(
          state_.in_levels(module, state_.load(module, a) - state_.load(module, b)));
    }
    rng_.shuffle(std::span<Movable>(movables_));
    std::vector<SplitItem> items;
    for (const Movable& movable : movables_) {
      SplitItem& item = items.emplace_back();
      item.num_options = static_cast<int>(movable.options.size());
      item.change.assign(movable.options.size() * dimensions, 0.0);
      for (std::size_t option = 1; option < movable.options.size(); ++option) {
        for (int module = first_module; module <= last_module; ++module) {
          item.change[option * dimensions + at(module - first_module)] =
              change(movable, option, module, a);
        }
      }
    }
    combinations_left_ -= keep_affordable(items, combinations);
    const std::vector<int> best = best_split(items, difference, kLeastGain);
    bool any = false;
    for (std::size_t i = 0; i < best.size(); ++i) {
      if (best[i] != 0) {
        place(movables_[i], movables_[i].options[at(best[i])]);
        any = true;
      }
    }
    return any;
  }

  // What an option adds to (load of slot a - load of the other slot) of a module.
  [[nodiscard]] double change(const Movable& movable, std::size_t option, int module, int a) const {
    if (movable.module >= 0 && movable.module != module) {
      return 0;
    }
    const Movable::Places& now = movable.options.front();
    const Movable::Places& then = movable.options[option];
    const bool of_llm = movable.module < 0 && module == state_.llm();
    const int from = of_llm ? now.llm : now.encoder;
    const int to = of_llm ? then.llm : then.encoder;
    if (from == to) {
      return 0;
    }
    const std::int64_t time = movable.module < 0 ? state_.time_of_sample(module, movable.id)
                                                 : state_.time_of(module, movable.id);
    return state_.in_levels(module, from == a ? -2 * time : 2 * time);
  }

  void place(const Movable& movable, const Movable::Places& places) {
    if (movable.module >= 0) {
      state_.move(movable.module, movable.id, places.encoder);
      return;
    }
    for (int module = 0; module <= state_.llm(); ++module) {
      const int to = module == state_.llm() ? places.llm : places.encoder;
      for (int unit = state_.first_unit(module, movable.id);
           unit < state_.first_unit(module, movable.id + 1);
           ++unit) {
        if (state_.slot_of(module, unit) != to) {
          state_.move(module, unit, to);
        }
      }
    }
  }

  // As settle(), for all modules together.
  bool settle_joint() {
    std::vector<std::vector<int>> tried(at(state_.num_slots()),
                                        std::vector<int>(at(state_.num_slots()), 0));
    bool any = false;
    bool improved = true;
    for (int round = 0; improved && round < kMostRounds; ++round) {
      improved = false;
      for (int a = 0; a < state_.num_slots(); ++a) {
        for (int b = a + 1; b < state_.num_slots(); ++b) {
          int version = 0;
          for (int module = 0; module <= state_.llm(); ++module) {
            version += state_.version(module, a) + state_.version(module, b);
          }
          if (tried[at(a)][at(b)] != version && worthwhile(a, b, 0, state_.llm())) {
            tried[at(a)][at(b)] = version;
            improved = split_joint(a, b) || improved;
          }
        }
      }
      any = any || improved;
    }
    return any;
  }

  // Renames slots: heaviest LLM load, lightest, second heaviest, second lightest, …
  void alternate_slots() {
    std::vector<int> rank(at(state_.num_slots()));
    std::iota(rank.begin(), rank.end(), 0);
    std::stable_sort(rank.begin(), rank.end(), [&](int a, int b) {
      return state_.load(state_.llm(), a) > state_.load(state_.llm(), b);
    });
    std::vector<int> slot_to(at(state_.num_slots()));
    for (int i = 0; i < state_.num_slots(); ++i) {
      const int from = rank[at(i % 2 == 0 ? i / 2 : state_.num_slots() - 1 - i / 2)];
      slot_to[at(from)] = i;
    }
    std::vector<int> slot_of_sample;
    for (const int sample : state_.samples()) {
      slot_of_sample.push_back(
          slot_to[at(state_.slot_of(state_.llm(), state_.first_unit(state_.llm(), sample)))]);
    }
    state_.clear();
    for (std::size_t i = 0; i < state_.samples().size(); ++i) {
      state_.put_sample(state_.samples()[i], slot_of_sample[i]);
    }
  }

  SlotLoads state_;
  Rng rng_;
  bool llm_placed_ = false;
  std::int64_t combinations_left_ = 0;
  std::vector<Movable> movables_;  // of the split that runs
};

}  // namespace

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
  for (const int window : {0, kWindow}) {
    const double score = balancer.score();
    const Placement before = placement;
    balancer.start_with_encoders_ahead(window);
    balancer.improve();
    if (score <= balancer.score()) {
      placement = before;
      balancer.reload();
    }
  }
}

}  // namespace entrain
