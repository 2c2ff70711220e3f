#include "entrain/core/assigner/moves.h"

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"

#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

TEST(Mover, KeepsPlacementsValidAndNamesWhatChanged) {
  constexpr std::uint64_t kSeed = 31;
  int changes = 0;
  for (int i = 0; i < 300; ++i) {
    Rng rng(kSeed, static_cast<std::uint64_t>(i));
    oracle::RandomCase random_case = oracle::make_random_case(rng);
    random_case.plan.limits.chunks = i % 2 == 0;
    AssignRequest request;
    request.plan = &random_case.plan;
    request.costs = &random_case.costs;
    const BatchLoads loads = batch_loads(random_case.plan, random_case.costs);
    const int replicas = random_case.plan.replicas;
    Placement placement =
        deal_in_order(random_case.costs, loads.descending, replicas, i % 2 == 0 ? 10 : 4);
    const std::vector<int> members = oracle::replicas_of(random_case.plan);
    Placement kept = placement;
    PlacementEdit edit(placement, kept, members);
    Mover mover(request, loads, members, rng, edit);
    for (int move = 0; move < 100; ++move) {
      const Placement before = placement;
      const Changed changed = mover.move(move % replicas);
      edit.keep();
      changes += changed.count;
      ASSERT_NO_THROW(validate_assignment(
          to_assignment(random_case.costs, placement), random_case.plan, random_case.costs))
          << "seed " << kSeed << ", case " << i << ", move " << move;
      for (int r = 0; r < replicas; ++r) {
        ASSERT_FALSE(placement.samples[static_cast<std::size_t>(r)].empty());
        if (changed.replica[0] != r && changed.replica[1] != r) {
          ASSERT_EQ(to_assignment(random_case.costs, before, r),
                    to_assignment(random_case.costs, placement, r));
        }
      }
    }
  }
  EXPECT_GT(changes, 5000);
}

TEST(Mover, KeepsToWhatTheOptionsAllow) {
  constexpr std::uint64_t kSeed = 32;
  for (int i = 0; i < 300; ++i) {
    Rng rng(kSeed, static_cast<std::uint64_t>(i));
    const oracle::RandomCase random_case = oracle::make_random_case(rng);
    AssignRequest request;
    request.plan = &random_case.plan;
    request.costs = &random_case.costs;
    request.options.choose_slots = false;
    request.options.defer = i % 2 == 0;
    request.options.split_segments = false;
    const BatchLoads loads = batch_loads(random_case.plan, random_case.costs);
    const int replicas = random_case.plan.replicas;
    Placement placement = deal_in_order(random_case.costs, loads.descending, replicas, 4);
    const std::vector<int> num_slots = placement.num_slots;
    const std::vector<int> members = oracle::replicas_of(random_case.plan);
    Placement kept = placement;
    PlacementEdit edit(placement, kept, members);
    Mover mover(request, loads, members, rng, edit);
    for (int move = 0; move < 60; ++move) {
      mover.move(move % replicas);
      edit.keep();
    }
    ASSERT_EQ(placement.num_slots, num_slots);
    for (int module = 0; module < random_case.costs.llm_module(); ++module) {
      const auto m = static_cast<std::size_t>(module);
      const std::vector<int>& first = random_case.costs.modules[m].first_unit;
      for (std::size_t sample = 0; sample + 1 < first.size(); ++sample) {
        for (int unit = first[sample]; unit < first[sample + 1]; ++unit) {
          const int slot = placement.encoder_slot[m][static_cast<std::size_t>(unit)];
          ASSERT_EQ(slot, placement.encoder_slot[m][static_cast<std::size_t>(first[sample])]);
          if (!request.options.defer) {
            ASSERT_EQ(slot, placement.llm_slot[sample]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace entrain
