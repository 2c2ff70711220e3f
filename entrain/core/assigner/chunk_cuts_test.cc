#include "entrain/core/assigner/chunk_cuts.h"

#include <gtest/gtest.h>

#include "entrain/core/base/at.h"
#include "entrain/core/graph/placement.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

constexpr int kSmall = 40;

// Two replicas of an encoder and four stages of the LLM: one sample of 12 times the work in the
// first, 40 others in the second, which takes nearly as long.
class ChunkCuts : public testing::Test {
 protected:
  ChunkCuts() : hand_(oracle::make_plain_case({1, 4}, 1 + kSmall)) {
    hand_.plan.replicas = 2;
    hand_.plan.num_slots = kSmall;
    hand_.plan.limits.chunks = true;
    for (StageCosts& stage : hand_.costs.modules[1].stages) {
      stage.units[0].time.forward *= 12;
      stage.units[0].time.backward_input *= 12;
      stage.units[0].time.backward_weight *= 12;
    }
    start_.placement = empty_placement(hand_.costs, 2, 1);
    start_.placement.samples = {{0}, {}};
    start_.placement.num_slots = {1, kSmall};
    for (int sample = 1; sample <= kSmall; ++sample) {
      start_.placement.samples[1].push_back(sample);
      place_sample(hand_.costs, sample, sample - 1, start_.placement);
    }
  }

  // Everything cut at once, or one after the other.
  Evaluated cut(bool all_at_once) {
    const AssignRequest request{.plan = &hand_.plan, .costs = &hand_.costs};
    StepEvaluator evaluator(hand_.plan, hand_.costs);
    start_.times.clear();
    for (const int replica : {0, 1}) {
      start_.times.push_back(evaluator.evaluate(start_.placement, replica));
    }
    Evaluated best = start_;
    cut_heavy_samples(
        request, batch_loads(hand_.plan, hand_.costs), evaluator, 50, all_at_once, best);
    for (const int replica : {0, 1}) {
      EXPECT_EQ(evaluator.evaluate(best.placement, replica).total_ns,
                best.times[at(replica)].total_ns);
    }
    return best;
  }

  oracle::HandCase hand_;
  Evaluated start_;
};

// Ten times as heavy again, so that no other sample comes to it: each of more pieces is faster.
TEST_F(ChunkCuts, CutASampleThatStaysAloneIntoManyPieces) {
  for (StageCosts& stage : hand_.costs.modules[1].stages) {
    stage.units[0].time.forward *= 10;
    stage.units[0].time.backward_input *= 10;
    stage.units[0].time.backward_weight *= 10;
  }
  hand_.costs.work[0].llm_tokens = 1000;
  const Evaluated best = cut(false);
  EXPECT_EQ(best.placement.samples[0].size(), 1U);
  EXPECT_GT(best.placement.chunks[0].size(), 8U);
}

TEST_F(ChunkCuts, GiveTheReplicaOfACutSampleOthersSamples) {
  for (const bool all_at_once : {false, true}) {
    const Evaluated best = cut(all_at_once);
    EXPECT_FALSE(best.placement.chunks[0].empty());
    EXPECT_GT(best.placement.samples[0].size(), 5U);
    EXPECT_EQ(best.placement.samples[0].size() + best.placement.samples[1].size(), 1U + kSmall);
    const auto step = [](const Evaluated& of) {
      return of.times[at(slowest_of(of.times))].total_ns;
    };
    EXPECT_LT(static_cast<double>(step(best)), 0.85 * static_cast<double>(step(start_)));
  }
}

// Its replica has one slot, of which it is no more than one: pieces are of the plan's slots.
TEST_F(ChunkCuts, CutASampleThatIsAloneInItsReplica) {
  hand_.plan.num_slots = 4;
  start_.placement.samples = {{0}, {1}};
  const Evaluated best = cut(true);
  EXPECT_GE(best.placement.chunks[0].size(), 4U);
}

}  // namespace
}  // namespace entrain
