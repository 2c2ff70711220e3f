#include "entrain/core/assigner/path_growth.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "entrain/core/assigner/evaluate.h"
#include "entrain/core/assigner/moves.h"
#include "entrain/core/graph/groups.h"

#include "tests/oracle/case_count.h"
#include "tests/oracle/placements.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

// Every sample's parts in the slot of its LLM work, unless that is cut.
Placement whole_samples(const oracle::RandomCase& of) {
  Placement placement = oracle::placement_of(of.assignment, of.costs);
  for (std::size_t module = 0; module < placement.encoder_slot.size(); ++module) {
    const std::vector<int>& first = of.costs.modules[module].first_unit;
    for (std::size_t sample = 0; sample < placement.llm_slot.size(); ++sample) {
      if (!placement.chunks[sample].empty()) {
        continue;
      }
      std::fill(placement.encoder_slot[module].begin() + first[sample],
                placement.encoder_slot[module].begin() + first[sample + 1],
                placement.llm_slot[sample]);
    }
  }
  return placement;
}

bool has_chunks(const Placement& placement, int replica) {
  const std::vector<int>& samples = placement.samples[static_cast<std::size_t>(replica)];
  return std::any_of(samples.begin(), samples.end(), [&](int sample) {
    return !placement.chunks[static_cast<std::size_t>(sample)].empty();
  });
}

// Where segments of one slot run in several groups, growth is what the longest path of them says.
bool groups_are_slots(const Placement& placement, int replica, const StepCosts& costs) {
  const auto groups = build_groups(to_assignment(costs, placement, replica), costs);
  return std::all_of(groups.begin(), groups.end() - 1, [](const ModuleGroups& of_encoder) {
    return std::all_of(of_encoder.begin(), of_encoder.end(), [](const std::vector<Group>& slot) {
      return slot.size() <= 1;
    });
  });
}

// A walk by moves: a replica's time is that of its path before at least, with the new costs along
// it, and often just that. Messages take no time here. An evaluator that knows the whole walk says
// the same as one that knows its last placement alone.
TEST(PathGrowth, BoundsTheTimeOfAMove) {
  constexpr std::uint64_t kSeed = 20261127;
  int bounds = 0;
  int tight = 0;
  int with_chunks = 0;
  for (int i = 0; i < oracle::case_count(400); ++i) {
    Rng rng(kSeed, static_cast<std::uint64_t>(i));
    oracle::RandomCase of = oracle::make_random_case(rng, {.chunks = i % 2 == 1});
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
    Placement placement = whole_samples(of);
    const std::vector<int> replicas = oracle::replicas_of(of.plan);
    Placement kept = placement;
    PlacementEdit edit(placement, kept, replicas);
    Mover mover(request, loads, replicas, rng, edit);
    StepEvaluator walked(of.plan, of.costs);
    for (int move = 0; move < 30; ++move) {
      StepEvaluator evaluator(of.plan, of.costs);  // knows the groups before alone
      std::vector<std::int64_t> before;
      for (int replica = 0; replica < of.plan.replicas; ++replica) {
        before.push_back(evaluator.find_chain(placement, replica).total_ns);
        walked.find_chain(placement, replica);
      }
      const Changed changed = mover.move(0);
      for (int n = 0; n < changed.count; ++n) {
        const int replica = changed.replica[n];
        const std::int64_t growth = evaluator.path_growth(edit, replica);
        ASSERT_EQ(walked.path_growth(edit, replica), growth) << "case " << i << ", move " << move;
        if (growth == std::numeric_limits<std::int64_t>::min() ||
            !groups_are_slots(placement, replica, of.costs) ||
            !evaluator.place_known(edit, replica)) {
          continue;  // other groups
        }
        const std::int64_t after = evaluator.evaluate(placement, replica).total_ns;
        const std::int64_t least = before[static_cast<std::size_t>(replica)] + growth;
        ASSERT_GE(after, least) << "case " << i << ", move " << move;
        ++bounds;
        with_chunks += has_chunks(placement, replica) ? 1 : 0;
        tight += after == least ? 1 : 0;
      }
      edit.keep();
    }
  }
  EXPECT_GT(bounds, oracle::met_count(1000));
  EXPECT_GT(tight, bounds / 3);
  EXPECT_GT(with_chunks, oracle::met_count(100));
}

}  // namespace
}  // namespace entrain
