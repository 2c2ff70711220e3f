#include "entrain/core/assigner/path_gain.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "entrain/core/assigner/evaluate.h"
#include "entrain/core/assigner/moves.h"

#include "tests/oracle/placements.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

// A walk by moves: a replica's time is that of its path before at least, with the new costs along
// it, and often just that. Messages take no time here.
TEST(PathGain, BoundsTheTimeOfAMove) {
  constexpr std::uint64_t kSeed = 20261127;
  int bounds = 0;
  int tight = 0;
  for (int i = 0; i < 400; ++i) {
    Rng rng(kSeed, static_cast<std::uint64_t>(i));
    oracle::RandomCase of = oracle::make_random_case(rng);
    if (std::any_of(of.plan.lanes.begin(), of.plan.lanes.end(), [](const auto& lane) {
          return lane.size() > 1;
        })) {
      continue;  // orders may change
    }
    of.costs.link = {};
    of.plan.schedule = "1f1b";
    AssignRequest request;
    request.plan = &of.plan;
    request.costs = &of.costs;
    request.options.defer = false;  // one group a slot
    const BatchLoads loads = batch_loads(of.plan, of.costs);
    Placement placement = oracle::placement_of(of.assignment, of.costs);
    for (std::size_t module = 0; module < placement.encoder_slot.size(); ++module) {
      const std::vector<int>& first = of.costs.modules[module].first_unit;
      for (std::size_t sample = 0; sample < placement.llm_slot.size(); ++sample) {
        std::fill(placement.encoder_slot[module].begin() + first[sample],
                  placement.encoder_slot[module].begin() + first[sample + 1],
                  placement.llm_slot[sample]);
      }
    }
    PlacementEdit edit(placement);
    Mover mover(request, loads, rng, edit);
    std::vector<std::int64_t> before(static_cast<std::size_t>(of.plan.replicas));
    for (int move = 0; move < 30; ++move) {
      StepEvaluator evaluator(of.plan, of.costs);  // knows the groups before alone
      for (int replica = 0; replica < of.plan.replicas; ++replica) {
        before[static_cast<std::size_t>(replica)] = evaluator.evaluate(placement, replica).total_ns;
        evaluator.take_path(placement, replica);
      }
      const Changed changed = mover.move(0);
      const std::array<std::int64_t, 2> growth =
          evaluator.path_growth(edit, {changed.replica[0], changed.replica[1]});
      for (int n = 0; n < changed.count && growth[0] != PathGain::kUnknown; ++n) {
        const int replica = changed.replica[n];
        const std::int64_t after = evaluator.replayed_ns(placement, replica);
        const std::int64_t least =
            before[static_cast<std::size_t>(replica)] + growth[static_cast<std::size_t>(n)];
        ASSERT_TRUE(after == 0 || after >= least) << "case " << i << ", move " << move;
        bounds += after > 0 ? 1 : 0;
        tight += after == least ? 1 : 0;
      }
      edit.keep();
    }
  }
  EXPECT_GT(bounds, 1000);
  EXPECT_GT(tight, bounds / 3);
}

}  // namespace
}  // namespace entrain
