// tests/property/assignment_test.cc compares with other policies and with exhaustion.
#include <algorithm>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/case_count.h"
#include "tests/oracle/hand_cases.h"
#include "tests/oracle/random_cases.h"
#include "tests/oracle/slow_memory.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

// 48 samples of uneven size, every fourth text-only, every fifth with four images.
oracle::HandCase uneven_case(int replicas, int seed = 5) {
  std::vector<oracle::HandSample> samples;
  for (int i = 0; i < 48; ++i) {
    const std::size_t images = i % 4 == 0 ? 0 : i % 5 == 0 ? 4 : 1;
    samples.push_back({0, {std::vector<int>(images, 0)}});
  }
  oracle::HandCase hand = oracle::make_hand_case({2, 2}, 1, samples);
  hand.plan.replicas = replicas;
  hand.plan.num_slots = 6;
  Rng rng(static_cast<std::uint64_t>(seed));
  for (ModuleCosts& module : hand.costs.modules) {
    for (std::size_t unit = 0; unit < module.stages[0].units.size(); ++unit) {
      const auto size = static_cast<std::int64_t>(100 + rng.below(900) * rng.below(4));
      for (StageCosts& stage : module.stages) {
        stage.units[unit].time = {nanoseconds{size}, nanoseconds{size}, nanoseconds{size}};
      }
    }
  }
  return hand;
}

nanoseconds step_time(const oracle::HandCase& hand,
                      const EntrainOptions& options = {},
                      const char* policy = "entrain") {
  AssignRequest request{.plan = &hand.plan, .costs = &hand.costs, .options = options};
  const StepAssignment result = assign(policy, request);
  validate_assignment(result, hand.plan, hand.costs);
  return simulate(build_program(hand.plan, result, hand.costs, hand.plan.schedule), hand.costs)
      .makespan;
}

// The step time of `entrain` over the bound.
double over_bound(const oracle::HandCase& hand) {
  const nanoseconds bound = step_lower_bound(hand.plan, hand.costs, hand.plan.schedule);
  return static_cast<double>(step_time(hand).count()) / static_cast<double>(bound.count());
}

TEST(EntrainPolicy, ComesNearTheBoundOnAnUnevenBatch) {
  const oracle::HandCase hand = uneven_case(2);
  EXPECT_LT(step_time(hand), 0.95 * step_time(hand, {}, "lpt-2d"));
  EXPECT_LT(over_bound(hand), 1.2);
}

TEST(EntrainPolicy, GainsFromEveryPartOnAnUnevenBatch) {
  oracle::HandCase hand = uneven_case(2);
  hand.plan.limits.evaluations = 1000;
  const nanoseconds full = step_time(hand);
  EXPECT_LT(full, step_time(hand, {.shape = false, .choose_slots = false, .defer = false}));
  EXPECT_LT(full, step_time(hand, {.choose_slots = false}));
}

// So that an ablation measures what it says.
TEST(EntrainPolicy, AssignsOtherwiseWithoutAnyOfItsParts) {
  for (const char* part : {"joint",
                           "replicas",
                           "shape",
                           "order",
                           "slots",
                           "deferral",
                           "segments",
                           "chunks",
                           "search",
                           "rivals",
                           "tuning",
                           "bytes"}) {
    bool differs = false;
    for (int i = 0; i < 300 && !differs; ++i) {
      oracle::HandCase hand = uneven_case(1 + i % 3, i);
      hand.plan.limits.evaluations = 1000;
      hand.plan.limits.chunks = std::string_view(part) == "chunks";
      hand.plan.limits.bytes_per_lane = std::string_view(part) == "bytes" ? 900 : 0;
      AssignRequest request{.plan = &hand.plan, .costs = &hand.costs};
      const StepAssignment whole = assign("entrain", request);
      request.options = entrain_options_without({part}, "test");
      differs = !(assign("entrain", request).replicas == whole.replicas);
    }
    EXPECT_TRUE(differs) << part;
  }
}

TEST(EntrainPolicy, KeepsThePlansSlotsWhereItMayNotChooseThem) {
  const oracle::HandCase hand = uneven_case(2);
  AssignRequest request{.plan = &hand.plan, .costs = &hand.costs};
  request.options.choose_slots = false;
  for (const ReplicaAssignment& replica : assign("entrain", request).replicas) {
    EXPECT_EQ(replica.num_slots, 6);
  }
}

TEST(EntrainPolicy, DefersNothingWhereItMayNot) {
  const oracle::HandCase hand = uneven_case(2);
  AssignRequest request{.plan = &hand.plan, .costs = &hand.costs};
  request.options.defer = false;
  for (const ReplicaAssignment& replica : assign("entrain", request).replicas) {
    EXPECT_TRUE(deferrals(replica).empty());
  }
}

TEST(EntrainPolicy, RefusesWhatFitsNoLane) {
  oracle::HandCase hand = uneven_case(1);
  hand.plan.limits.bytes_per_lane = 1;
  AssignRequest request{.plan = &hand.plan, .costs = &hand.costs};
  try {
    assign("entrain", request);
    FAIL();
  } catch (const NothingFits& error) {
    for (const char* word : {"lane ", "slot ", "allowed: 1 B (1 bytes)"}) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
}

TEST(EntrainPolicy, IsValidWithoutAnyBudget) {
  oracle::HandCase hand = uneven_case(4);
  hand.plan.limits.evaluations = 0;
  EXPECT_GT(step_time(hand), nanoseconds{0});
}

TEST(EntrainPolicy, HandlesAnOversizedSample) {
  oracle::HandCase hand = uneven_case(2);
  for (StageCosts& stage : hand.costs.modules[1].stages) {
    stage.units[7].time = {nanoseconds{100'000}, nanoseconds{100'000}, nanoseconds{100'000}};
  }
  EXPECT_LT(over_bound(hand), 1.05);
}

TEST(EntrainPolicy, HandlesATextOnlyModelOnOneLane) {
  oracle::HandCase hand = oracle::make_plain_case({2}, 9);
  hand.plan.lanes = {{{0, 0}, {0, 1}}};
  hand.plan.replicas = 2;
  EXPECT_DOUBLE_EQ(over_bound(hand), 1);
}

// A replica of one lane takes the sum of its work: how even replicas are decides, and the plan's
// slots are no more than a first number.
TEST(EntrainPolicy, IsNoSlowerOnOneLaneThanEvenBinsOfAnyNumberOfSlots) {
  int slower_by_given_slots = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    oracle::HandCase hand = oracle::make_plain_case({1}, 256);
    hand.plan.replicas = 32;
    Rng rng(seed);
    for (UnitCost& unit : hand.costs.modules[0].stages[0].units) {
      const auto size = static_cast<std::int64_t>(1'000 + rng.below(300) * rng.below(300));
      unit.time = {nanoseconds{size}, nanoseconds{size}, nanoseconds{size}};
    }
    hand.plan.num_slots = 4;
    hand.plan.limits.evaluations = default_evaluations(hand.plan.replicas);
    const nanoseconds ours = step_time(hand);
    const nanoseconds by_given_slots = step_time(hand, {}, "dflop");
    hand.plan.num_slots = 1;
    const nanoseconds even = step_time(hand, {}, "dflop");
    EXPECT_LE(ours, std::min(by_given_slots, even)) << "seed " << seed;
    slower_by_given_slots += even < by_given_slots ? 1 : 0;
  }
  EXPECT_GT(slower_by_given_slots, 1);
}

// Long slots hide more of a reduction than short ones, which evaluations do not see.
TEST(EntrainPolicy, IsNoSlowerThanEvenSlotsWhereReductionsOverlap) {
  for (int seed = 0; seed < 12; ++seed) {
    oracle::HandCase hand = uneven_case(8, seed);
    hand.plan.lanes = {{{0, 0}, {1, 0}}, {{0, 1}, {1, 1}}};
    hand.plan.schedule = "entrain";
    hand.plan.num_slots = 2;
    hand.costs.reduce_buckets = 8;
    for (ModuleCosts& module : hand.costs.modules) {
      for (StageCosts& stage : module.stages) {
        stage.reduce = nanoseconds{20'000};
      }
    }
    const nanoseconds ours = step_time(hand);
    for (const int num_slots : {1, 2, 4}) {
      hand.plan.num_slots = num_slots;
      EXPECT_LE(ours, step_time(hand, {}, "lpt-2d")) << "seed " << seed << ", K " << num_slots;
    }
    hand.plan.num_slots = 2;
    EXPECT_LE(ours, step_time(hand, {}, "dflop")) << "seed " << seed;
  }
}

// [lane] most bytes of any replica, by an oracle that adds up what is alive.
std::vector<std::int64_t> peak_bytes(const oracle::RandomCase& of,
                                     const StepAssignment& assignment,
                                     const std::string& schedule) {
  const Program program = build_program(of.plan, assignment, of.costs, schedule);
  std::vector<std::int64_t> peaks;
  for (int lane = 0; lane < of.plan.num_lanes(); ++lane) {
    std::int64_t peak = 1;
    for (int replica = 0; replica < of.plan.replicas; ++replica) {
      for (const std::int64_t bytes : oracle::slow_memory(program, of.costs, replica, lane)) {
        peak = std::max(peak, bytes);
      }
    }
    peaks.push_back(peak);
  }
  return peaks;
}

bool has_chunks(const StepAssignment& assignment) {
  for (const ReplicaAssignment& replica : assignment.replicas) {
    for (const Slot& slot : replica.modules.back()) {
      if (std::any_of(slot.begin(), slot.end(), [](const WorkItem& x) { return x.is_chunk(); })) {
        return true;
      }
    }
  }
  return false;
}

// What is cut needs bytes for the gradients of keys and values: no cut leaves the limits that whole
// samples keep.
TEST(EntrainPolicy, CutsNothingThatBreaksTheLimitWhichWholeSamplesKeep) {
  int with_chunks = 0;
  int kept_from_more = 0;  // without limits the result would need more
  for (int i = 0; i < 400; ++i) {
    SCOPED_TRACE(testing::Message() << "case " << i);
    Rng rng(53, static_cast<std::uint64_t>(i));
    oracle::RandomCaseOptions options;
    options.chunks = true;
    oracle::RandomCase of = oracle::make_random_case(rng, options);
    of.plan.schedule = i % 2 == 0 ? "entrain" : "1f1b";
    of.plan.limits.evaluations = 100;
    const AssignRequest request{.plan = &of.plan, .costs = &of.costs};
    const std::vector<std::int64_t> whole = peak_bytes(of, assign("lpt-2d", request), "1f1b");
    const std::vector<std::int64_t> free =
        peak_bytes(of, assign("entrain", request), of.plan.schedule);
    of.plan.limits.lane_bytes = whole;
    const StepAssignment result = assign("entrain", request);
    const std::vector<std::int64_t> peaks = peak_bytes(of, result, of.plan.schedule);
    bool more = false;
    for (std::size_t lane = 0; lane < whole.size(); ++lane) {
      EXPECT_LE(peaks[lane], whole[lane]) << "lane " << lane;
      more = more || free[lane] > whole[lane];
    }
    with_chunks += has_chunks(result) ? 1 : 0;
    kept_from_more += more ? 1 : 0;
  }
  EXPECT_GT(with_chunks, 20);
  EXPECT_GT(kept_from_more, 20);
}

std::int64_t step_of(const oracle::RandomCase& of, int evaluations) {
  Plan plan = of.plan;
  plan.limits.evaluations = evaluations;
  const AssignRequest request{.plan = &plan, .costs = &of.costs};
  try {
    const BuiltStep built = build_step(plan, assign("entrain", request), of.costs, plan.schedule);
    return simulate(built.program, built.graph, of.costs).makespan.count();
  } catch (const NothingFits&) {
    return std::numeric_limits<std::int64_t>::max();
  }
}

TEST(EntrainPolicy, IsNeverSlowerWithALargerBudget) {
  int faster = 0;
  for (int i = 0; i < oracle::case_count(120); ++i) {
    Rng rng(61, static_cast<std::uint64_t>(i));
    oracle::RandomCaseOptions options;
    options.chunks = i % 3 == 0;
    oracle::RandomCase of = oracle::make_random_case(rng, options);
    of.plan.schedule = i % 2 == 0 ? "entrain" : "1f1b";
    const AssignRequest request{.plan = &of.plan, .costs = &of.costs};
    of.plan.limits.lane_bytes = peak_bytes(of, assign("lpt-2d", request), "1f1b");
    for (std::int64_t& bytes : of.plan.limits.lane_bytes) {
      bytes = bytes * static_cast<std::int64_t>(70 + rng.below(50)) / 100 + 1;
    }
    std::int64_t before = std::numeric_limits<std::int64_t>::max();
    for (const int evaluations : {1, 40, 55, 90, 170, 260, 401, 700}) {
      const std::int64_t now = step_of(of, evaluations);
      ASSERT_LE(now, before) << "case " << i << ", evaluations " << evaluations;
      faster += now < before ? 1 : 0;
      before = now;
    }
  }
  EXPECT_GT(faster, oracle::met_count(80));
}

// About where what was constructed later, and lost to what was searched, is searched, too.
TEST(EntrainPolicy, IsNeverSlowerWhereASearchOfARivalIsNotPaidFor) {
  int faster = 0;
  for (int i = 0; i < oracle::case_count(10); ++i) {
    Rng rng(62, static_cast<std::uint64_t>(i));
    oracle::RandomCaseOptions options;
    options.encoders = 1;
    options.encoder_stages = 2;
    options.llm_stages = 3;
    options.replicas = 2;
    options.frozen = oracle::FrozenPattern::kNone;
    options.layout = oracle::LaneLayout::kLanePerStage;
    options.max_samples = 60;
    oracle::RandomCase of = oracle::make_random_case(rng, options);
    of.plan.schedule = "1f1b";
    std::int64_t before = std::numeric_limits<std::int64_t>::max();
    for (int of_replica = 170; of_replica < 250; of_replica += 10) {
      const std::int64_t now = step_of(of, of_replica * of.plan.replicas);
      ASSERT_LE(now, before) << "case " << i << ", evaluations of a replica " << of_replica;
      faster += now < before ? 1 : 0;
      before = now;
    }
  }
  EXPECT_GT(faster, oracle::met_count(10));
}

StepAssignment under(oracle::RandomCase of, std::int64_t bytes, int evaluations) {
  of.plan.limits.bytes_per_lane = bytes;
  of.plan.limits.evaluations = evaluations;
  return assign("entrain", {.plan = &of.plan, .costs = &of.costs});
}

TEST(EntrainPolicy, IsTheSameUnderLimitsThatExcludeNothing) {
  for (int i = 0; i < 200; ++i) {
    Rng rng(67, static_cast<std::uint64_t>(i));
    oracle::RandomCaseOptions options;
    options.chunks = i % 3 == 0;
    oracle::RandomCase of = oracle::make_random_case(rng, options);
    of.plan.schedule = i % 2 == 0 ? "entrain" : "1f1b";
    const int evaluations = 60 + static_cast<int>(rng.below(600));
    ASSERT_EQ(digest(under(of, std::int64_t{1} << 50, evaluations)),
              digest(under(of, 0, evaluations)))
        << "case " << i;
  }
}

TEST(EntrainPolicy, AssignsTheSameOnAnyNumberOfThreads) {
  for (int seed = 0; seed < 6; ++seed) {
    oracle::HandCase hand = uneven_case(4 + seed % 3, seed);
    hand.plan.schedule = seed % 2 == 0 ? "entrain" : "1f1b";
    hand.plan.limits.evaluations = 2000;
    hand.plan.limits.chunks = seed == 5;
    AssignRequest request{.plan = &hand.plan, .costs = &hand.costs};
    const StepAssignment alone = assign("entrain", request);
    if (seed >= 3) {  // under a limit that binds
      const Program program = build_program(hand.plan, alone, hand.costs, hand.plan.schedule);
      hand.plan.limits.bytes_per_lane =
          simulate(program, hand.costs).lanes[0][0].peak_bytes * 2 / 3;
    }
    const StepAssignment expected = assign("entrain", request);
    for (const int threads : {2, 3, 16}) {
      request.threads = threads;
      EXPECT_EQ(assign("entrain", request).replicas, expected.replicas)
          << "seed " << seed << ", " << threads << " threads";
    }
  }
}

// A tighter limit may be faster by chance of the search, seldom and by little. Case by case: limits
// from half to all that the step without limits needs.
TEST(EntrainPolicy, IsSeldomFasterUnderATighterLimit) {
  int compared = 0;
  int faster = 0;
  double excess = 0;
  for (int i = 0; i < 100; ++i) {
    Rng rng(71, static_cast<std::uint64_t>(i));
    oracle::RandomCase of = oracle::make_random_case(rng);
    of.plan.schedule = "1f1b";
    const std::vector<std::int64_t> peaks = peak_bytes(of, under(of, 0, 300), "1f1b");
    const std::int64_t most = *std::max_element(peaks.begin(), peaks.end());
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const int percent : {50, 60, 70, 80, 90, 100}) {
      of.plan.limits.bytes_per_lane = most * percent / 100 + 1;
      const std::int64_t step = step_of(of, 300);
      if (least < std::numeric_limits<std::int64_t>::max()) {
        ASSERT_LT(step, std::numeric_limits<std::int64_t>::max()) << "case " << i << ": lost";
        ++compared;
        faster += least < step ? 1 : 0;
        excess += static_cast<double>(std::max(step, least)) / static_cast<double>(least) - 1;
      }
      least = std::min(least, step);
    }
  }
  EXPECT_GT(compared, 200);
  EXPECT_LT(faster, compared / 10);
  EXPECT_LT(excess / compared, 0.002);
}

}  // namespace
}  // namespace entrain
