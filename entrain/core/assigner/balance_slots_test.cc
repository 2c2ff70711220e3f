#include "entrain/core/assigner/balance_slots.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/baselines/module_work.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

struct SlotsCase {
  oracle::HandCase hand;
  BalanceTimes times;
  Placement placement;
};

// One stage per module; a sample's segments take encoder[sample], its LLM work llm[sample].
SlotsCase make_instance(const std::vector<std::vector<int>>& encoder,
                        const std::vector<int>& llm,
                        int num_slots) {
  SlotsCase result;
  std::vector<oracle::HandSample> samples;
  for (const std::vector<int>& segments : encoder) {
    samples.push_back({0, {std::vector<int>(segments.size(), 0)}});
  }
  result.hand = oracle::make_hand_case({1, 1}, num_slots, samples);
  std::size_t unit = 0;
  for (std::size_t sample = 0; sample < encoder.size(); ++sample) {
    for (const int time : encoder[sample]) {
      result.hand.costs.modules[0].stages[0].units[unit++].time.forward = nanoseconds{time};
    }
    result.hand.costs.modules[1].stages[0].units[sample].time.forward = nanoseconds{llm[sample]};
  }
  for (int module = 0; module < 2; ++module) {
    result.times.unit.push_back(forward_times(result.hand.costs, module));
    const std::vector<std::int64_t>& units = result.times.unit.back();
    result.times.level.push_back(
        static_cast<double>(std::accumulate(units.begin(), units.end(), std::int64_t{0})) /
        num_slots);
  }
  result.times.sample_of.resize(2);
  for (std::size_t sample = 0; sample < encoder.size(); ++sample) {
    result.times.sample_of[0].insert(
        result.times.sample_of[0].end(), encoder[sample].size(), static_cast<int>(sample));
    result.times.sample_of[1].push_back(static_cast<int>(sample));
  }
  result.placement = empty_placement(result.hand.costs, 1, num_slots);
  result.placement.samples[0].resize(llm.size());
  std::iota(result.placement.samples[0].begin(), result.placement.samples[0].end(), 0);
  return result;
}

// [slot] load of a module.
std::vector<std::int64_t> slot_loads_of(const SlotsCase& instance, std::size_t module) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(instance.placement.num_slots[0]), 0);
  const std::vector<int>& slots =
      module == 0 ? instance.placement.encoder_slot[0] : instance.placement.llm_slot;
  for (std::size_t unit = 0; unit < slots.size(); ++unit) {
    loads[static_cast<std::size_t>(slots[unit])] += instance.times.unit[module][unit];
  }
  return loads;
}

void run(SlotsCase& instance, int max_deferral) {
  balance_slots(instance.hand.costs, instance.times, 0, max_deferral, instance.placement);
}

TEST(BalanceSlots, BalancesModulesThatNoWholeSampleCan) {
  // Encoders are even only as 3 + 3 and 2 + 2 + 2, where the LLM has 2 and 4; one of the three
  // light samples has to be deferred.
  const std::vector<std::vector<int>> encoder = {{3}, {3}, {2}, {2}, {2}};
  for (const int max_deferral : {1, -1}) {
    SlotsCase instance = make_instance(encoder, {1, 1, 1, 1, 2}, 2);
    run(instance, max_deferral);
    EXPECT_EQ(slot_loads_of(instance, 0), (std::vector<std::int64_t>{6, 6}));
    EXPECT_EQ(slot_loads_of(instance, 1), (std::vector<std::int64_t>{3, 3}));
  }
  SlotsCase instance = make_instance(encoder, {1, 1, 1, 1, 2}, 2);
  run(instance, 0);
  EXPECT_EQ(instance.placement.encoder_slot[0], instance.placement.llm_slot);
}

TEST(BalanceSlots, SpreadsTheSegmentsOfOneSample) {
  SlotsCase instance = make_instance({{5, 5, 5, 5}, {}, {}, {}}, {4, 4, 4, 4}, 4);
  run(instance, -1);
  EXPECT_EQ(slot_loads_of(instance, 0), (std::vector<std::int64_t>{5, 5, 5, 5}));
  EXPECT_EQ(slot_loads_of(instance, 1), (std::vector<std::int64_t>{4, 4, 4, 4}));
}

TEST(BalanceSlots, KeepsTheDeferralLimit) {
  Rng rng(31, 1);
  for (int i = 0; i < 300; ++i) {
    std::vector<std::vector<int>> encoder(1 + rng.below(14));
    std::vector<int> llm;
    for (std::vector<int>& segments : encoder) {
      segments.resize(rng.below(4));
      for (int& segment : segments) {
        segment = static_cast<int>(rng.below(20));
      }
      llm.push_back(static_cast<int>(rng.below(20)));
    }
    const int num_slots = 1 + static_cast<int>(rng.below(7));
    const int max_deferral = static_cast<int>(rng.below(5)) - 1;
    SlotsCase instance = make_instance(encoder, llm, num_slots);
    run(instance, max_deferral);
    for (std::size_t unit = 0; unit < instance.times.sample_of[0].size(); ++unit) {
      const auto sample = static_cast<std::size_t>(instance.times.sample_of[0][unit]);
      const int distance =
          instance.placement.llm_slot[sample] - instance.placement.encoder_slot[0][unit];
      ASSERT_GE(distance, 0) << "case " << i;
      ASSERT_LE(distance, max_deferral < 0 ? num_slots : max_deferral) << "case " << i;
      ASSERT_LT(instance.placement.llm_slot[sample], num_slots);
      ASSERT_GE(instance.placement.encoder_slot[0][unit], 0);
    }
  }
}

TEST(BalanceSlots, ComesNearAnEvenSplitOfManySamples) {
  Rng rng(31, 2);
  std::vector<std::vector<int>> encoder(128);
  std::vector<int> llm;
  for (std::vector<int>& segments : encoder) {
    segments.push_back(500 + static_cast<int>(rng.below(1000)));
    llm.push_back(200 + static_cast<int>(rng.below(2000)));
  }
  SlotsCase instance = make_instance(encoder, llm, 16);
  run(instance, -1);
  for (const std::size_t module : {0U, 1U}) {
    const std::vector<std::int64_t> loads = slot_loads_of(instance, module);
    const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
    EXPECT_LE(static_cast<double>(*most), 1.005 * static_cast<double>(*least));
  }
}

}  // namespace
}  // namespace entrain
